/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of trainer/cuda/kernels/ptx.h on the host. What a thread reads and writes in memory
 * it does itself, so that sanitizers see it. */
#ifndef MUSTER_SHIM_CUDA_PTX_H
#define MUSTER_SHIM_CUDA_PTX_H

#include <float.h>
#include <math.h>

#include "tests/shim/ptx.h"

/* clang-format off: a line each */
static inline void mma_m16n8k16_bf16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
	ptx_mma(d, a, b);
}

/* `count` matrices; the lane's share of each. */
static inline void shim_ldmatrix(uint32_t *r, const void *shared, int count, bool transposed)
{
	const void *rows[32];
	unsigned int g = warp_lane() / 4, t = warp_lane() % 4;
	ptx_rows(shared, rows, 8 * count);
	for (int m = 0; m < count; m++) {
		const void *const *row = rows + 8 * m;
		if (transposed)
			r[m] = ((const uint16_t *)row[2 * t])[g]
				| (uint32_t)((const uint16_t *)row[2 * t + 1])[g] << 16;
		else
			r[m] = ((const uint16_t *)row[g])[2 * t]
				| (uint32_t)((const uint16_t *)row[g])[2 * t + 1] << 16;
	}
}

static inline void ldmatrix_x4(uint32_t r[4], const void *shared)
{
	shim_ldmatrix(r, shared, 4, false);
}
static inline void ldmatrix_x4_trans(uint32_t r[4], const void *shared)
{
	shim_ldmatrix(r, shared, 4, true);
}
static inline void ldmatrix_x2(uint32_t r[2], const void *shared)
{
	shim_ldmatrix(r, shared, 2, false);
}
static inline void ldmatrix_x2_trans(uint32_t r[2], const void *shared)
{
	shim_ldmatrix(r, shared, 2, true);
}

static inline void shim_copy(const ptx_copy &copy)
{
	uint4 words = { 0, 0, 0, 0 };
	if (copy.from)
		words = *(const uint4 *)copy.from;
	*(uint4 *)copy.to = words;
}

static inline void cp_async_16(void *shared, const void *global, bool valid)
{
	ptx_copy copy = { shared, valid ? global : NULL };
	if (ptx_copies_now(&copy))
		shim_copy(copy);
}

static inline void cp_async_commit()
{
	ptx_commit();
}
/* clang-format on */

template <int groups> static inline void cp_async_wait()
{
	ptx_copy copy;
	while (ptx_finished(groups, &copy))
		shim_copy(copy);
}

static inline float exp2_approx(float x)
{
	float result = exp2f(x);
	return result < FLT_MIN ? 0 : result;
}

#endif
