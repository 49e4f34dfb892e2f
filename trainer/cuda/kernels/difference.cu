/* SPDX-License-Identifier: Apache-2.0 */
/* Distances between tensors, bound by memory: moves 2·count elements. Maxima do not depend on the
 * order. */
#include "trainer/cuda/kernels/difference.h"

#include <math.h>

#include "trainer/cuda/kernels/bf16.h"
#include "trainer/cuda/kernels/launch.h"

#define WARPS 8
#define THREADS (WARPS * LANES)

/* fmaxf ignores NaN; here NaN counts as infinity. */
__device__ __forceinline__ float larger(float most, float value)
{
	return value <= most ? most : value < INFINITY ? value : INFINITY;
}

/* a, b: [count]; block p has every gridDim.x-th run of THREADS elements, from the p-th on */
template <typename T>
__global__ void LAUNCH_BOUNDS(THREADS)
	difference_kernel(struct difference *parts, const T *a, const T *b, size_t count)
{
	SHARED(float, most, WARPS);
	SHARED(float, largest, WARPS);
	const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
	struct difference own = { 0, 0 };
	for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < count;
		 i += (size_t)gridDim.x * THREADS) {
		own.most = larger(own.most, fabsf(float_of(a[i]) - float_of(b[i])));
		own.largest = larger(own.largest, fabsf(float_of(b[i])));
	}
	for (int distance = LANES / 2; distance > 0; distance /= 2) {
		own.most = larger(own.most, __shfl_down_sync(0xffffffffu, own.most, distance));
		own.largest = larger(own.largest, __shfl_down_sync(0xffffffffu, own.largest, distance));
	}
	if (lane == 0) {
		most[warp] = own.most;
		largest[warp] = own.largest;
	}
	__syncthreads();
	if (threadIdx.x > 0)
		return;
	for (int w = 1; w < WARPS; w++) {
		own.most = larger(own.most, most[w]);
		own.largest = larger(own.largest, largest[w]);
	}
	parts[blockIdx.x] = own;
}

extern "C" int cuda_difference(struct difference *parts, const void *a, const void *b, size_t count,
	enum cuda_type type, void *stream)
{
	const unsigned int blocks = difference_parts(count);
	if (count == 0)
		return 0;
	if (type == CUDA_BF16)
		return LAUNCH(difference_kernel<bf16>, blocks, THREADS, 0, stream, parts, (const bf16 *)a,
			(const bf16 *)b, count);
	return LAUNCH(difference_kernel<float>, blocks, THREADS, 0, stream, parts, (const float *)a,
		(const float *)b, count);
}
