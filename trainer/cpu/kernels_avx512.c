/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels for x86-64 with AVX-512. */
#include "config.h"

#include "trainer/cpu/cpu.h"
#include "trainer/cpu/kernels.h"

#ifdef __x86_64__
#include <immintrin.h>
#pragma GCC target("avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")
#define VEC_BITS 512
#define KERNELS kernels_avx512
#include "trainer/cpu/vec.h"
#include "trainer/cpu/kernels_batchnorm.h"
#include "trainer/cpu/kernels_rows.h"
#include "trainer/cpu/kernels_tiles.h"
#include "trainer/cpu/kernels_decode.h"
#include "trainer/cpu/kernels_gemm.h"
#endif
