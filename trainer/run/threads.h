/* SPDX-License-Identifier: Apache-2.0 */
/* How many threads a rank computes with. */
#ifndef MUSTER_THREADS_H
#define MUSTER_THREADS_H

#include "common/ident.h"

/* SLURM_CPUS_PER_TASK where the user gave it, else this rank's share of the CPUs it may use: all of
 * them when it is bound to fewer than the machine has, since then they are its own, else the
 * machine's divided by the ranks on it. */
int threads_default(const struct ident *ident);

/* Sets the number for OpenMP. */
void threads_set(int count);

#endif
