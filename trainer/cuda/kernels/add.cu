/* SPDX-License-Identifier: Apache-2.0 */
/* Element-wise addition, bound by memory: moves 12·count bytes. A thread has a pack of neighbours,
 * or one element where an address is not aligned for a pack. */
#include "trainer/cuda/kernels/add.h"

#include "trainer/cuda/kernels/launch.h"
#include "trainer/cuda/kernels/pack.h"

#define THREADS 256

/* out, a, b: [count] */
template <int P>
__global__ void LAUNCH_BOUNDS(THREADS)
	add_kernel(float *out, const float *a, const float *b, size_t count)
{
	const size_t i = ((size_t)blockIdx.x * THREADS + threadIdx.x) * P;
	float sum[P], other[P];
	if (i >= count)
		return;
	load_upto(sum, a + i, count - i);
	load_upto(other, b + i, count - i);
	UNROLL
	for (int e = 0; e < P; e++)
		sum[e] += other[e];
	store_upto(out + i, sum, count - i);
}

extern "C" int cuda_add(float *out, const float *a, const float *b, size_t count, void *stream)
{
	const bool wide = is_wide(out, a, b);
	const size_t own = THREADS * (wide ? 4 : 1);
	auto kernel = wide ? add_kernel<4> : add_kernel<1>;
	if (count == 0)
		return 0;
	return LAUNCH(kernel, (unsigned int)((count + own - 1) / own), THREADS, 0, stream, out, a, b,
		count);
}
