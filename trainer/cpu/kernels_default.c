/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels for any CPU, and the choice of the table in effect. */
#include "config.h"

#include "trainer/cpu/cpu.h"
#include "trainer/cpu/isa.h"
#include "trainer/cpu/kernels.h"

#define VEC_BITS 128
#define KERNELS kernels_default
#include "trainer/cpu/vec.h"
#include "trainer/cpu/kernels_batchnorm.h"
#include "trainer/cpu/kernels_rows.h"
#include "trainer/cpu/kernels_tiles.h"
#include "trainer/cpu/kernels_decode.h"
#include "trainer/cpu/kernels_gemm.h"

const struct kernels *kernels_now(void)
{
#ifdef __x86_64__
	switch (cpu_isa()) {
	case CPU_ISA_AVX512: return &kernels_avx512;
	case CPU_ISA_AVX2: return &kernels_avx2;
	case CPU_ISA_DEFAULT: break;
	}
#endif
	return &kernels_default;
}
