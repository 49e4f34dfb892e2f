/* SPDX-License-Identifier: Apache-2.0 */
/* Batch normalisation. Element-wise parts move M·C·(x and y; dy, x and dx) elements. Sums over the
 * rows move M·C·x, for the moments a second time, from the cache if it holds 32 columns a block; or
 * M·C·(dy, x). A block sums 32 columns: each of its 32 warps sums every 32nd row in fp64, and the
 * warps' sums are added in their order. The number of blocks depends on C alone. */
#include "trainer/cuda/kernels/batchnorm.h"

#include "trainer/cuda/kernels/launch.h"
#include "trainer/cuda/kernels/pack.h"

#define WARPS 8
#define THREADS (WARPS * LANES)
#define COLUMNS 32 /* columns that a block sums */
#define RUNS 32    /* runs of rows, each one warp's */

/* Adds the values of a column's threads in their order; every thread gets the total. `runs`:
 * [RUNS·COLUMNS] */
template <typename N> __device__ __forceinline__ N column_total(N *runs, N own)
{
	N total = 0;
	__syncthreads(); /* the previous total has been read */
	runs[threadIdx.x] = own;
	__syncthreads();
	for (int run = 0; run < RUNS; run++)
		total += runs[run * COLUMNS + threadIdx.x % COLUMNS];
	return total;
}

/* moments: [2,C]; x: [M,C]; targets: [M] */
template <typename T>
__global__ void LAUNCH_BOUNDS(COLUMNS *RUNS)
	batchnorm_moments_kernel(double *moments, const T *x, const int32_t *targets, int M, int C)
{
	SHARED(double, sums_of_runs, RUNS *COLUMNS);
	SHARED(int, rows_of_runs, RUNS *COLUMNS);
	const size_t c = (size_t)blockIdx.x * COLUMNS + threadIdx.x % COLUMNS;
	const bool inside = c < (size_t)C;
	double sum = 0, squares = 0;
	int count = 0;
#pragma unroll 8
	for (int m = threadIdx.x / COLUMNS; m < M; m += RUNS)
		if (inside && targets[m] >= 0) {
			sum += (double)float_of(x[(size_t)m * C + c]);
			count++;
		}
	count = column_total(rows_of_runs, count);
	sum = column_total(sums_of_runs, sum);
	const double mean = count ? sum / count : 0;
#pragma unroll 8
	for (int m = threadIdx.x / COLUMNS; m < M; m += RUNS)
		if (inside && targets[m] >= 0) {
			const double distance = (double)float_of(x[(size_t)m * C + c]) - mean;
			squares += distance * distance;
		}
	squares = column_total(sums_of_runs, squares);
	if (!inside || threadIdx.x >= COLUMNS)
		return;
	moments[c] = mean;
	moments[C + c] = squares;
}

/* sums: [2,C]; dgamma, dbeta, mean, rstd: [C]; dy, x: [M,C]; targets: [M] */
template <typename T>
__global__ void LAUNCH_BOUNDS(COLUMNS *RUNS)
	batchnorm_sums_kernel(double *sums, float *dgamma, float *dbeta, const T *dy, const T *x,
		const float *mean, const float *rstd, const int32_t *targets, int M, int C, int accumulate)
{
	SHARED(double, sums_of_runs, RUNS *COLUMNS);
	const size_t c = (size_t)blockIdx.x * COLUMNS + threadIdx.x % COLUMNS;
	const bool inside = c < (size_t)C;
	const float center = inside ? mean[c] : 0, scale = inside ? rstd[c] : 0;
	double normals = 0, gradients = 0;
#pragma unroll 8
	for (int m = threadIdx.x / COLUMNS; m < M; m += RUNS)
		if (inside && targets[m] >= 0) {
			const float n = (float_of(x[(size_t)m * C + c]) - center) * scale,
						d = float_of(dy[(size_t)m * C + c]);
			normals = fma((double)d, (double)n, normals); /* the product is exact in fp64 */
			gradients += (double)d;
		}
	normals = column_total(sums_of_runs, normals);
	gradients = column_total(sums_of_runs, gradients);
	if (!inside || threadIdx.x >= COLUMNS)
		return;
	sums[c] = normals;
	sums[C + c] = gradients;
	dgamma[c] = (accumulate ? dgamma[c] : 0) + (float)normals;
	dbeta[c] = (accumulate ? dbeta[c] : 0) + (float)gradients;
}

/* y, x: [M,C]; the others [C]; a warp a row, P columns a lane at a time */
template <typename T, int P>
__global__ void LAUNCH_BOUNDS(THREADS) batchnorm_relu_kernel(T *y, const T *x, const float *mean,
	const float *rstd, const T *gamma, const T *beta, int M, int C)
{
	const size_t m = (size_t)blockIdx.x * WARPS + threadIdx.x / LANES;
	if (m >= (size_t)M)
		return;
	for (int c = threadIdx.x % LANES * P; c < C; c += LANES * P) {
		float value[P], center[P], scale[P], gain[P], shift[P];
		load(value, x + m * C + c);
		load(center, mean + c);
		load(scale, rstd + c);
		load(gain, gamma + c);
		load(shift, beta + c);
		UNROLL
		for (int e = 0; e < P; e++) {
			const float a = (value[e] - center[e]) * scale[e] * gain[e] + shift[e];
			value[e] = a < 0 ? 0 : a; /* written such that a NaN stays a NaN */
		}
		store(y + m * C + c, value);
	}
}

/* dx, dy, x: [M,C]; means: [2,C]; targets: [M]; the others [C]; a warp a row, P columns a lane at a
 * time */
template <typename T, int P>
__global__ void LAUNCH_BOUNDS(THREADS)
	batchnorm_backward_kernel(T *dx, const T *dy, const T *x, const float *mean, const float *rstd,
		const T *gamma, const float *means, const int32_t *targets, int M, int C)
{
	const size_t m = (size_t)blockIdx.x * WARPS + threadIdx.x / LANES;
	if (m >= (size_t)M)
		return;
	const bool counts = targets[m] >= 0;
	for (int c = threadIdx.x % LANES * P; c < C; c += LANES * P) {
		float value[P], gradient[P], center[P], scale[P], gain[P], mean_gn[P], mean_g[P];
		load(value, x + m * C + c);
		load(gradient, dy + m * C + c);
		load(center, mean + c);
		load(scale, rstd + c);
		load(gain, gamma + c);
		load(mean_gn, means + c);
		load(mean_g, means + C + c);
		UNROLL
		for (int e = 0; e < P; e++) {
			const float n = (value[e] - center[e]) * scale[e];
			const float d = (gradient[e] - mean_g[e] - n * mean_gn[e]) * (gain[e] * scale[e]);
			value[e] = counts ? d : 0;
		}
		store(dx + m * C + c, value);
	}
}

static unsigned int parts(int count, int own)
{
	return (unsigned int)((count + own - 1) / own);
}

extern "C" int cuda_batchnorm_moments(double *moments, const void *x, const int32_t *targets, int M,
	int C, enum cuda_type type, void *stream)
{
	if (type == CUDA_FP32)
		return LAUNCH(batchnorm_moments_kernel<float>, parts(C, COLUMNS), COLUMNS * RUNS, 0, stream,
			moments, (const float *)x, targets, M, C);
	return LAUNCH(batchnorm_moments_kernel<bf16>, parts(C, COLUMNS), COLUMNS * RUNS, 0, stream,
		moments, (const bf16 *)x, targets, M, C);
}

extern "C" int cuda_batchnorm_sums(double *sums, float *dgamma, float *dbeta, const void *dy,
	const void *x, const float *mean, const float *rstd, const int32_t *targets, int M, int C,
	int accumulate, enum cuda_type type, void *stream)
{
	if (type == CUDA_FP32)
		return LAUNCH(batchnorm_sums_kernel<float>, parts(C, COLUMNS), COLUMNS * RUNS, 0, stream,
			sums, dgamma, dbeta, (const float *)dy, (const float *)x, mean, rstd, targets, M, C,
			accumulate);
	return LAUNCH(batchnorm_sums_kernel<bf16>, parts(C, COLUMNS), COLUMNS * RUNS, 0, stream, sums,
		dgamma, dbeta, (const bf16 *)dy, (const bf16 *)x, mean, rstd, targets, M, C, accumulate);
}

template <typename T>
static int relu(T *y, const T *x, const float *mean, const float *rstd, const T *gamma,
	const T *beta, int M, int C, void *stream)
{
	const bool wide = C % pack_of<T> == 0 && is_wide(y, x, mean, rstd, gamma, beta);
	auto kernel = wide ? batchnorm_relu_kernel<T, pack_of<T>> : batchnorm_relu_kernel<T, 1>;
	if (M == 0)
		return 0;
	return LAUNCH(kernel, parts(M, WARPS), THREADS, 0, stream, y, x, mean, rstd, gamma, beta, M, C);
}

extern "C" int cuda_batchnorm_relu(void *y, const void *x, const float *mean, const float *rstd,
	const void *gamma, const void *beta, int M, int C, enum cuda_type type, void *stream)
{
	if (type == CUDA_FP32)
		return relu((float *)y, (const float *)x, mean, rstd, (const float *)gamma,
			(const float *)beta, M, C, stream);
	return relu((bf16 *)y, (const bf16 *)x, mean, rstd, (const bf16 *)gamma, (const bf16 *)beta, M,
		C, stream);
}

template <typename T>
static int backward(T *dx, const T *dy, const T *x, const float *mean, const float *rstd,
	const T *gamma, const float *means, const int32_t *targets, int M, int C, void *stream)
{
	const bool wide = C % pack_of<T> == 0 && is_wide(dx, dy, x, mean, rstd, gamma, means);
	auto kernel = wide ? batchnorm_backward_kernel<T, pack_of<T>> : batchnorm_backward_kernel<T, 1>;
	if (M == 0)
		return 0;
	return LAUNCH(kernel, parts(M, WARPS), THREADS, 0, stream, dx, dy, x, mean, rstd, gamma, means,
		targets, M, C);
}

extern "C" int cuda_batchnorm_backward(void *dx, const void *dy, const void *x, const float *mean,
	const float *rstd, const void *gamma, const float *means, const int32_t *targets, int M, int C,
	enum cuda_type type, void *stream)
{
	if (type == CUDA_FP32)
		return backward((float *)dx, (const float *)dy, (const float *)x, mean, rstd,
			(const float *)gamma, means, targets, M, C, stream);
	return backward((bf16 *)dx, (const bf16 *)dy, (const bf16 *)x, mean, rstd, (const bf16 *)gamma,
		means, targets, M, C, stream);
}
