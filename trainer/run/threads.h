/* SPDX-License-Identifier: Apache-2.0 */
/* The number of threads that a rank computes with. */
#ifndef MUSTER_THREADS_H
#define MUSTER_THREADS_H

#include "common/ident.h"

/* SLURM_CPUS_PER_TASK where the user gave it, else this rank's share of the CPUs that it may use. A
 * rank that is bound to fewer CPUs than the machine has gets all of them, since they are its own;
 * otherwise the machine's CPUs are divided by its ranks. */
int threads_default(const struct ident *ident);

/* Sets the number for OpenMP. */
void threads_set(int count);

#endif
