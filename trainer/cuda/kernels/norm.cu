/* SPDX-License-Identifier: Apache-2.0 */
/* Layer normalisation, bound by memory. A warp has a row, in registers if it fits, so that each
 * element is read once: forward moves M·C·(x, y, and with the residual add and sum) elements;
 * backward dy, x and dx (twice if it accumulates) and 16·C·parts bytes of partial sums. */
#include "trainer/cuda/kernels/norm.h"

#include "trainer/cuda/kernels/launch.h"
#include "trainer/cuda/kernels/pack.h"

#define WARPS 8
#define THREADS (WARPS * LANES)
#define EPSILON 1e-5f
#define WIDEST 2048 /* elements of the widest row that is kept in registers */

template <typename T> struct norm_forward {
	T *sum, *y;            /* [M,C] */
	float *mean, *rstd;    /* [M] */
	const T *x, *add;      /* [M,C], add may be NULL */
	const T *gamma, *beta; /* [C] */
	int M, C;
};

/* The sum over a warp's lanes. All lanes get the same bits, since a + b equals b + a. */
__device__ __forceinline__ float warp_sum(float value)
{
	UNROLL
	for (int distance = LANES / 2; distance > 0; distance /= 2)
		value += __shfl_xor_sync(0xffffffffu, value, distance);
	return value;
}

__device__ __forceinline__ float rstd_of(float squares, int C)
{
	return 1.0f / sqrtf(warp_sum(squares) / (float)C + EPSILON);
}

/* The sum of x and add as it is stored; x without `add`. */
template <typename T, int N>
__device__ __forceinline__ void join_input(float (&value)[N], const struct norm_forward<T> &rows,
	size_t at, const float (&other)[N])
{
	if (!rows.add)
		return;
	UNROLL
	for (int e = 0; e < N; e++)
		value[e] = rounded<T>(value[e] + other[e]);
	store(rows.sum + at, value);
}

template <typename T, int N>
__device__ __forceinline__ void store_normal(const struct norm_forward<T> &rows,
	const float (&value)[N], size_t at, int c, float mean, float rstd)
{
	float gamma[N], beta[N];
	load(gamma, rows.gamma + c);
	load(beta, rows.beta + c);
	UNROLL
	for (int e = 0; e < N; e++)
		beta[e] = fmaf((value[e] - mean) * rstd, gamma[e], beta[e]);
	store(rows.y + at, beta);
}

template <typename T>
__device__ __forceinline__ void save_moments(const struct norm_forward<T> &rows, size_t m,
	float mean, float rstd)
{
	if (threadIdx.x % LANES)
		return;
	rows.mean[m] = mean;
	rows.rstd[m] = rstd;
}

/* Lane l has packs l, l + 32, … of its row: PACKS of them; the last may lie after the row's end. */
template <typename T, int PACKS>
__global__ void LAUNCH_BOUNDS(THREADS) norm_forward_kernel(const struct norm_forward<T> rows)
{
	constexpr int N = pack_of<T>;
	const int first = threadIdx.x % LANES * N;
	const size_t m = (size_t)blockIdx.x * WARPS + threadIdx.x / LANES;
	struct raw_pack<T> x_pack[PACKS] = {}, add_pack[PACKS] = {
	};
	float value[PACKS][N] = {}, sum = 0, squares = 0;
	if (m >= (size_t)rows.M)
		return;
	/* All loads start before the first store, which may be to the same tensor. */
	UNROLL
	for (int i = 0; i < PACKS; i++)
		if (first + i * LANES * N < rows.C) {
			x_pack[i] = load_raw(rows.x + m * rows.C + first + i * LANES * N);
			if (rows.add)
				add_pack[i] = load_raw(rows.add + m * rows.C + first + i * LANES * N);
		}
	UNROLL
	for (int i = 0; i < PACKS; i++)
		if (first + i * LANES * N < rows.C) {
			float other[N];
			unpack(value[i], x_pack[i]);
			unpack(other, add_pack[i]);
			join_input(value[i], rows, m * rows.C + first + i * LANES * N, other);
		}
	UNROLL
	for (int i = 0; i < PACKS; i++)
		UNROLL
	for (int e = 0; e < N; e++)
		sum += value[i][e];
	const float mean = warp_sum(sum) / (float)rows.C;
	UNROLL
	for (int i = 0; i < PACKS; i++)
		UNROLL
	for (int e = 0; e < N; e++)
		if (first + i * LANES * N < rows.C)
			squares = fmaf(value[i][e] - mean, value[i][e] - mean, squares);
	const float rstd = rstd_of(squares, rows.C);
	UNROLL
	for (int i = 0; i < PACKS; i++)
		if (first + i * LANES * N < rows.C)
			store_normal(rows, value[i], m * rows.C + first + i * LANES * N, first + i * LANES * N,
				mean, rstd);
	save_moments(rows, m, mean, rstd);
}

/* For any C and any address. Each lane reads again only what it has written itself. */
template <typename T>
__global__ void LAUNCH_BOUNDS(THREADS) norm_forward_any_kernel(const struct norm_forward<T> rows)
{
	const int lane = threadIdx.x % LANES;
	const size_t m = (size_t)blockIdx.x * WARPS + threadIdx.x / LANES, row = m * rows.C;
	const T *const in = rows.add ? rows.sum : rows.x;
	float value[1], other[1] = {}, sum = 0, squares = 0;
	if (m >= (size_t)rows.M)
		return;
	for (int c = lane; c < rows.C; c += LANES) {
		load(value, rows.x + row + c);
		if (rows.add)
			load(other, rows.add + row + c);
		join_input(value, rows, row + c, other);
		sum += value[0];
	}
	const float mean = warp_sum(sum) / (float)rows.C;
	for (int c = lane; c < rows.C; c += LANES) {
		load(value, in + row + c);
		squares = fmaf(value[0] - mean, value[0] - mean, squares);
	}
	const float rstd = rstd_of(squares, rows.C);
	for (int c = lane; c < rows.C; c += LANES) {
		load(value, in + row + c);
		store_normal(rows, value, row + c, c, mean, rstd);
	}
	save_moments(rows, m, mean, rstd);
}

static unsigned int blocks_of(int M)
{
	return (unsigned int)((M + WARPS - 1) / WARPS);
}

template <typename T, int PACKS>
static int launch_forward(const struct norm_forward<T> &rows, void *stream)
{
	auto kernel = norm_forward_kernel<T, PACKS>;
	return LAUNCH(kernel, blocks_of(rows.M), THREADS, 0, stream, rows);
}

template <typename T> static int forward(const struct norm_forward<T> &rows, void *stream)
{
	const bool wide = rows.C % pack_of<T> == 0
		&& is_wide(rows.sum, rows.y, rows.x, rows.add, rows.gamma, rows.beta);
	auto any = norm_forward_any_kernel<T>;
	if (wide && rows.C <= WIDEST)
		return BY_WIDTH(launch_forward, T, rows.C, WIDEST, rows, stream);
	return LAUNCH(any, blocks_of(rows.M), THREADS, 0, stream, rows);
}

extern "C" int cuda_layernorm(void *sum, void *y, float *mean, float *rstd, const void *x,
	const void *add, const void *gamma, const void *beta, int M, int C, enum cuda_type type,
	void *stream)
{
	if (M == 0)
		return 0;
	if (type == CUDA_FP32)
		return forward<float>({ (float *)(add ? sum : NULL), (float *)y, mean, rstd,
								  (const float *)x, (const float *)add, (const float *)gamma,
								  (const float *)beta, M, C },
			stream);
	return forward<bf16>({ (bf16 *)(add ? sum : NULL), (bf16 *)y, mean, rstd, (const bf16 *)x,
							 (const bf16 *)add, (const bf16 *)gamma, (const bf16 *)beta, M, C },
		stream);
}
