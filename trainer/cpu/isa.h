/* SPDX-License-Identifier: Apache-2.0 */
/* The instruction set that the CPU's kernels use: chosen once, before the first product. */
#ifndef MUSTER_CPU_ISA_H
#define MUSTER_CPU_ISA_H

#include "common/err.h"

enum cpu_isa { CPU_ISA_DEFAULT, CPU_ISA_AVX2, CPU_ISA_AVX512 };

/* The pinned one, else the best that this CPU has. */
enum cpu_isa cpu_isa(void);

/* From here on it is the one in effect, for oneDNN too: what ops_cpu_isa() says is then all there
 * is to say. */
int cpu_isa_settle(struct err *err);

#endif
