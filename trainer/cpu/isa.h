/* SPDX-License-Identifier: Apache-2.0 */
/* The instruction set that the CPU's kernels use; it is chosen once, before the first product. */
#ifndef MUSTER_CPU_ISA_H
#define MUSTER_CPU_ISA_H

#include "common/err.h"

enum cpu_isa { CPU_ISA_DEFAULT, CPU_ISA_AVX2, CPU_ISA_AVX512 };

/* The pinned instruction set, else the best that this CPU has. */
enum cpu_isa cpu_isa(void);

/* Fixes the instruction set in effect from here on, for oneDNN too, so that ops_cpu_isa() names the
 * only one in use. */
int cpu_isa_settle(struct err *err);

#endif
