/* SPDX-License-Identifier: Apache-2.0 */
/* Column sums, bound by memory: each lane has a pack of columns, and each block the rows of one
 * part (partials.h), each warp every eighth of them. Moves M·N elements, and 8·N bytes a part out
 * and in again. */
#include "trainer/cuda/kernels/column_sums.h"

#include "trainer/cuda/kernels/launch.h"
#include "trainer/cuda/kernels/pack.h"

#define WARPS 8
#define THREADS (WARPS * LANES)

/* dy: [M,N]; partials: [parts][N]; block (x, y) has columns [32·P·x, 32·P·(x+1)) of part y, P of
 * them a lane */
template <typename T, int P>
__global__ void LAUNCH_BOUNDS(THREADS)
	column_sums_kernel(float *partials, const T *dy, int M, int N, int rows)
{
	SHARED(float, tile, WARPS *LANES *P);
	const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
	const size_t first = (size_t)blockIdx.x * LANES * P, begin = (size_t)blockIdx.y * rows;
	float sums[P] = {}, values[P];
	if (first + lane * P < (size_t)N)
#pragma unroll 4
		for (size_t m = begin + warp; m < min(begin + rows, (size_t)M); m += WARPS) {
			load(values, dy + m * N + first + lane * P);
			UNROLL
			for (int e = 0; e < P; e++)
				sums[e] += values[e];
		}
	UNROLL
	for (int e = 0; e < P; e++)
		tile[(warp * LANES + lane) * P + e] = sums[e];
	__syncthreads();
	for (int c = threadIdx.x; c < LANES * P; c += THREADS) {
		float sum = 0;
		for (int w = 0; w < WARPS; w++)
			sum += tile[w * LANES * P + c];
		if (first + c < (size_t)N)
			partials[(size_t)blockIdx.y * N + first + c] = sum;
	}
}

template <typename T, int P>
static int launch(float *partials, const void *dy, int M, int N, void *stream)
{
	const dim3 grid((unsigned int)((N + LANES * P - 1) / (LANES * P)),
		(unsigned int)partial_count(M));
	auto kernel = column_sums_kernel<T, P>;
	return LAUNCH(kernel, grid, THREADS, 0, stream, partials, (const T *)dy, M, N, partial_rows(M));
}

template <typename T>
static int column_sums(float *partials, const void *dy, int M, int N, void *stream)
{
	if (M == 0)
		return 0;
	return N % pack_of<T> == 0 && is_wide(dy) ? launch<T, pack_of<T>>(partials, dy, M, N, stream)
											  : launch<T, 1>(partials, dy, M, N, stream);
}

extern "C" int cuda_column_sums(float *dbias, float *scratch, const void *dy, int M, int N,
	int accumulate, enum cuda_type type, void *stream)
{
	float *const out[2] = { dbias, NULL };
	int error = type == CUDA_FP32 ? column_sums<float>(scratch, dy, M, N, stream)
								  : column_sums<bf16>(scratch, dy, M, N, stream);
	return error ? error
				 : cuda_partials_fold(out, scratch, partial_count(M), 1, N, accumulate, stream);
}
