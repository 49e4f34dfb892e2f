/* SPDX-License-Identifier: Apache-2.0 */
/* The backward pass of layer normalisation, bound by memory. With n = (x - mean)·rstd and g =
 * dy·gamma it is dx = rstd·(g - mean(g) - n·mean(g·n)). A block has the rows of one part
 * (partials.h), each warp every fourth of them, and sums their dgamma and dbeta on the way, so that
 * dy and x are read once. Moves M·C·(dy, x, dx, and dx again where it accumulates) elements, and
 * 8·C bytes a part, out and in again. */
#include "trainer/cuda/kernels/norm.h"

#include "trainer/cuda/kernels/launch.h"
#include "trainer/cuda/kernels/pack.h"

#define WARPS 4
#define THREADS (WARPS * LANES)
/* Elements of the widest row that is kept in registers; two of bf16 take as many registers as one
 * of fp32. */
#define WIDEST(T) (sizeof(T) == 4 ? 1792 : 2048)

template <typename T> struct norm_backward {
	T *dx;                    /* [M,C] */
	float *partials;          /* [parts][2][C]: of dgamma, of dbeta */
	const T *dy, *x;          /* [M,C] */
	const T *gamma;           /* [C] */
	const float *mean, *rstd; /* [M] */
	int M, C, rows;           /* of a part */
	bool accumulate;          /* for dx */
};

/* The means over a row that each of its elements needs. */
struct row_means {
	float g, gn;
};

__device__ __forceinline__ struct row_means warp_means(struct row_means sums, int C)
{
	UNROLL
	for (int distance = LANES / 2; distance > 0; distance /= 2) {
		sums.g += __shfl_xor_sync(0xffffffffu, sums.g, distance);
		sums.gn += __shfl_xor_sync(0xffffffffu, sums.gn, distance);
	}
	return { sums.g / (float)C, sums.gn / (float)C };
}

template <typename T, int N>
__device__ __forceinline__ void store_dx(const struct norm_backward<T> &rows, size_t at,
	const float (&old)[N], const float (&dy)[N], const float (&x)[N], const float (&gamma)[N],
	float mean, float rstd, struct row_means means)
{
	float dx[N];
	UNROLL
	for (int e = 0; e < N; e++) {
		const float n = (x[e] - mean) * rstd;
		const float d = rstd * (dy[e] * gamma[e] - means.g - n * means.gn);
		dx[e] = rows.accumulate ? old[e] + d : d;
	}
	store(rows.dx + at, dx);
}

/* A lane's part of a row as loaded: packs l, l + 32, … are lane l's. */
template <typename T, int PACKS> struct raw_row {
	struct raw_pack<T> dy[PACKS], x[PACKS], old[PACKS];
	float mean, rstd;
};

template <typename T, int PACKS>
__device__ __forceinline__ void load_row(struct raw_row<T, PACKS> &row,
	const struct norm_backward<T> &rows, size_t m)
{
	constexpr int N = pack_of<T>;
	const int first = threadIdx.x % LANES * N, C = rows.C;
	UNROLL
	for (int i = 0; i < PACKS; i++)
		if (first + i * LANES * N < C) {
			row.dy[i] = load_raw(rows.dy + m * C + first + i * LANES * N);
			row.x[i] = load_raw(rows.x + m * C + first + i * LANES * N);
			if (rows.accumulate)
				row.old[i] = load_raw(rows.dx + m * C + first + i * LANES * N);
		}
	row.mean = rows.mean[m];
	row.rstd = rows.rstd[m];
}

/* One row of a warp: computes dx, and adds to the lane's sums. */
template <typename T, int PACKS, int N>
__device__ __forceinline__ void backward_row(const struct norm_backward<T> &rows, size_t m,
	const struct raw_row<T, PACKS> &row, float (&dgamma)[PACKS][N], float (&dbeta)[PACKS][N])
{
	const int first = threadIdx.x % LANES * N, C = rows.C;
	const float mean = row.mean, rstd = row.rstd;
	struct row_means sums = { 0, 0 };
	float dy[N], x[N], gamma[N], old[N];
	UNROLL
	for (int i = 0; i < PACKS; i++) {
		if (first + i * LANES * N >= C)
			break;
		unpack(dy, row.dy[i]);
		unpack(x, row.x[i]);
		load(gamma, rows.gamma + first + i * LANES * N);
		UNROLL
		for (int e = 0; e < N; e++) {
			const float n = (x[e] - mean) * rstd;
			sums.g += dy[e] * gamma[e];
			sums.gn = fmaf(dy[e] * gamma[e], n, sums.gn);
			dgamma[i][e] = fmaf(dy[e], n, dgamma[i][e]);
			dbeta[i][e] += dy[e];
		}
	}
	const struct row_means means = warp_means(sums, C);
	UNROLL
	for (int i = 0; i < PACKS; i++) {
		if (first + i * LANES * N >= C)
			break;
		unpack(dy, row.dy[i]);
		unpack(x, row.x[i]);
		unpack(old, row.old[i]);
		load(gamma, rows.gamma + first + i * LANES * N);
		store_dx(rows, m * C + first + i * LANES * N, old, dy, x, gamma, mean, rstd, means);
	}
}

/* Whether a lane's registers have room for the next row, which is then under way while one is
 * computed: 255 in all, of which the sums take two an element. */
template <typename T, int PACKS>
constexpr bool two_rows_fit = PACKS *pack_of<T> *(2 + 6 * (int)sizeof(T) / 4) <= 200;

template <typename T, int PACKS>
__global__ void LAUNCH_BOUNDS(THREADS) norm_backward_kernel(const struct norm_backward<T> rows)
{
	constexpr int N = pack_of<T>, SLICE = LANES * N; /* columns that one pack of each lane covers */
	SHARED(float, tile, WARPS * 2 * SLICE);
	const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
	const size_t begin = (size_t)blockIdx.x * rows.rows,
				 end = min(begin + rows.rows, (size_t)rows.M);
	float dgamma[PACKS][N] = {}, dbeta[PACKS][N] = {};
	struct raw_row<T, PACKS> next = {
	};
	if (two_rows_fit<T, PACKS> && begin + warp < end)
		load_row(next, rows, begin + warp);
	for (size_t m = begin + warp; m < end; m += WARPS) {
		struct raw_row<T, PACKS> row = next;
		if (!two_rows_fit<T, PACKS>)
			load_row(row, rows, m);
		else if (m + WARPS < end)
			load_row(next, rows, m + WARPS);
		backward_row(rows, m, row, dgamma, dbeta);
	}
	UNROLL
	for (int i = 0; i < PACKS; i++) {
		UNROLL
		for (int e = 0; e < N; e++) {
			tile[(warp * 2) * SLICE + lane * N + e] = dgamma[i][e];
			tile[(warp * 2 + 1) * SLICE + lane * N + e] = dbeta[i][e];
		}
		__syncthreads();
		for (int s = threadIdx.x; s < 2 * SLICE; s += THREADS) {
			const int c = i * SLICE + s % SLICE;
			float sum = 0;
			for (int w = 0; w < WARPS; w++)
				sum += tile[w * 2 * SLICE + s];
			if (c < rows.C)
				rows.partials[((size_t)blockIdx.x * 2 + s / SLICE) * rows.C + c] = sum;
		}
		__syncthreads();
	}
}

/* dx for any C and any address; a warp a row. */
template <typename T>
__global__ void LAUNCH_BOUNDS(THREADS) norm_backward_any_kernel(const struct norm_backward<T> rows)
{
	const size_t m = (size_t)blockIdx.x * WARPS + threadIdx.x / LANES, row = m * rows.C;
	struct row_means sums = { 0, 0 };
	float dy[1], x[1], gamma[1], old[1] = {};
	if (m >= (size_t)rows.M)
		return;
	const float mean = rows.mean[m], rstd = rows.rstd[m];
	for (int c = threadIdx.x % LANES; c < rows.C; c += LANES) {
		load(dy, rows.dy + row + c);
		load(x, rows.x + row + c);
		load(gamma, rows.gamma + c);
		sums.g += dy[0] * gamma[0];
		sums.gn = fmaf(dy[0] * gamma[0], (x[0] - mean) * rstd, sums.gn);
	}
	const struct row_means means = warp_means(sums, rows.C);
	for (int c = threadIdx.x % LANES; c < rows.C; c += LANES) {
		load(dy, rows.dy + row + c);
		load(x, rows.x + row + c);
		load(gamma, rows.gamma + c);
		if (rows.accumulate)
			load(old, rows.dx + row + c);
		store_dx(rows, row + c, old, dy, x, gamma, mean, rstd, means);
	}
}

/* The parts of dgamma and dbeta for that case: a thread a column; block (x, y) has columns [256·x,
 * …) of part y. */
template <typename T>
__global__ void LAUNCH_BOUNDS(THREADS) norm_partials_any_kernel(const struct norm_backward<T> rows)
{
	const size_t c = (size_t)blockIdx.x * THREADS + threadIdx.x,
				 begin = (size_t)blockIdx.y * rows.rows;
	float dy[1], x[1], dgamma = 0, dbeta = 0;
	if (c >= (size_t)rows.C)
		return;
	for (size_t m = begin; m < begin + rows.rows && m < (size_t)rows.M; m++) {
		load(dy, rows.dy + m * rows.C + c);
		load(x, rows.x + m * rows.C + c);
		dgamma = fmaf(dy[0], (x[0] - rows.mean[m]) * rows.rstd[m], dgamma);
		dbeta += dy[0];
	}
	rows.partials[(size_t)blockIdx.y * 2 * rows.C + c] = dgamma;
	rows.partials[((size_t)blockIdx.y * 2 + 1) * rows.C + c] = dbeta;
}

template <typename T, int PACKS>
static int launch_backward(const struct norm_backward<T> &rows, void *stream)
{
	auto kernel = norm_backward_kernel<T, PACKS>;
	return LAUNCH(kernel, (unsigned int)partial_count(rows.M), THREADS, 0, stream, rows);
}

/* partials come first, since dx may be dy. */
template <typename T> static int launch_any(const struct norm_backward<T> &rows, void *stream)
{
	const dim3 columns((unsigned int)((rows.C + THREADS - 1) / THREADS),
		(unsigned int)partial_count(rows.M));
	auto partials = norm_partials_any_kernel<T>;
	auto backward = norm_backward_any_kernel<T>;
	int error = LAUNCH(partials, columns, THREADS, 0, stream, rows);
	return error
		? error
		: LAUNCH(backward, (unsigned int)((rows.M + WARPS - 1) / WARPS), THREADS, 0, stream, rows);
}

template <typename T> static int backward(const struct norm_backward<T> &rows, void *stream)
{
	if (rows.C % pack_of<T> == 0 && rows.C <= WIDEST(T)
		&& is_wide(rows.dx, rows.dy, rows.x, rows.gamma))
		return BY_WIDTH(launch_backward, T, rows.C, WIDEST(T), rows, stream);
	return launch_any(rows, stream);
}

extern "C" int cuda_layernorm_backward(void *dx, float *dgamma, float *dbeta, float *scratch,
	const void *dy, const void *x, const void *gamma, const float *mean, const float *rstd, int M,
	int C, int accumulate_dx, int accumulate, enum cuda_type type, void *stream)
{
	float *const sums[2] = { dgamma, dbeta };
	const int rows = partial_rows(M);
	int error = 0;
	if (M > 0 && type == CUDA_FP32)
		error =
			backward<float>({ (float *)dx, scratch, (const float *)dy, (const float *)x,
								(const float *)gamma, mean, rstd, M, C, rows, accumulate_dx != 0 },
				stream);
	else if (M > 0)
		error =
			backward<bf16>({ (bf16 *)dx, scratch, (const bf16 *)dy, (const bf16 *)x,
							   (const bf16 *)gamma, mean, rstd, M, C, rows, accumulate_dx != 0 },
				stream);
	return error ? error
				 : cuda_partials_fold(sums, scratch, partial_count(M), 2, C, accumulate, stream);
}
