/* SPDX-License-Identifier: Apache-2.0 */
/* The forward pass of attention on the tensor cores, for bf16 and heads of up to 128 columns.
 *
 * A block of 4 warps has 128 query rows (64 where a head is wider than 64). Each warp has its own
 * rows in registers and goes over tiles of 64 keys and values; while it computes one tile, the next
 * is copied. The softmax is updated as scores come (arXiv 2307.08691, algorithm 1), in powers of
 * two. */
#include "trainer/cuda/kernels/attention_tile.h"

#define KEYS 64

template <int COLUMNS, int FRAGMENTS> struct mma_forward {
	static constexpr int D = COLUMNS, M = FRAGMENTS, ROWS = MMA_WARPS * 16 * M;
	static constexpr size_t SHARED_BYTES = (size_t)(ROWS + 4 * KEYS) * TILE_PITCH(D) * sizeof(bf16);
};

/* A warp's softmax so far; a lane has two rows of every 16. */
template <int M> struct mma_softmax {
	float most[M][2]; /* largest raw score */
	float sum[M][2];  /* this lane's part of the sum of exponentials relative to `most` */
};

__device__ __forceinline__ float quad_max(float x)
{
	x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
	return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

__device__ __forceinline__ float quad_sum(float x)
{
	x += __shfl_xor_sync(0xffffffffu, x, 1);
	return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

/* Hides the keys after each query, for rows from `row` on and keys from `key` on. */
template <int M, int N>
__device__ __forceinline__ void hide_later_keys(float scores[M][N / 8][4], int row, int key)
{
	row += lane_of_thread() / 4;
	key += lane_of_thread() % 4 * 2;
	UNROLL
	for (int m = 0; m < M; m++)
		UNROLL
	for (int n = 0; n < N / 8; n++)
		UNROLL
	for (int i = 0; i < 4; i++)
		if (key + 8 * n + i % 2 > row + 16 * m + i / 2 * 8)
			scores[m][n][i] = -INFINITY;
}

/* Turns a tile's scores into weights relative to the rows' largest scores now, and rescales the
 * results so far. `scale` is that of the scores times log2(e). */
template <int D, int M, int N>
__device__ __forceinline__ void soften(mma_softmax<M> *so_far, float scores[M][N / 8][4],
	float results[M][D / 8][4], float scale)
{
	UNROLL
	for (int m = 0; m < M; m++)
		UNROLL
	for (int half = 0; half < 2; half++) {
		float most = so_far->most[m][half], sum = 0;
		UNROLL
		for (int n = 0; n < N / 8; n++)
			most = fmaxf(most, fmaxf(scores[m][n][2 * half], scores[m][n][2 * half + 1]));
		most = quad_max(most); /* finite from the first tile on: key 0 is never hidden */
		float decay = exp2_approx((so_far->most[m][half] - most) * scale), offset = -most * scale;
		UNROLL
		for (int n = 0; n < N / 8; n++)
			UNROLL
		for (int i = 2 * half; i < 2 * half + 2; i++) {
			scores[m][n][i] = exp2_approx(fmaf(scores[m][n][i], scale, offset));
			sum += scores[m][n][i];
		}
		so_far->sum[m][half] = fmaf(so_far->sum[m][half], decay, sum);
		so_far->most[m][half] = most;
		UNROLL
		for (int n = 0; n < D / 8; n++) {
			results[m][n][2 * half] *= decay;
			results[m][n][2 * half + 1] *= decay;
		}
	}
}

template <int D>
__device__ __forceinline__ void load_keys(bf16 *k, bf16 *v, const bf16 *qkv, int tile,
	const attention_shape &shape)
{
	const size_t C = (size_t)shape.C;
	tile_load<D, KEYS>(k + tile % 2 * KEYS * TILE_PITCH(D), qkv + C, 3 * C, tile * KEYS, shape);
	tile_load<D, KEYS>(v + tile % 2 * KEYS * TILE_PITCH(D), qkv + 2 * C, 3 * C, tile * KEYS, shape);
	cp_async_commit();
}

/* Computes the factors that divide each row of the results by its sum. Writes lse. */
template <int M>
__device__ __forceinline__ void finish(float factors[M][2], float *lse,
	const mma_softmax<M> &so_far, int row, const attention_shape &shape)
{
	UNROLL
	for (int m = 0; m < M; m++)
		UNROLL
	for (int half = 0; half < 2; half++) {
		float sum = quad_sum(so_far.sum[m][half]);
		int at = row + 16 * m + 8 * half + lane_of_thread() / 4;
		factors[m][half] = 1.0f / sum;
		if (lane_of_thread() % 4 == 0 && at < shape.T)
			lse[at] = fmaf(so_far.most[m][half], shape.scale, logf(sum));
	}
}

/* y[B,T,C], lse[B,H,T] from qkv[B,T,3C] */
template <class S>
__global__ void LAUNCH_BOUNDS(MMA_THREADS)
	mma_forward_kernel(bf16 *y, float *lse, const bf16 *qkv, attention_shape shape)
{
	constexpr int D = S::D, M = S::M;
	SHARED_DYNAMIC(bf16, q);
	bf16 *k = q + S::ROWS * TILE_PITCH(D), *v = k + 2 * KEYS * TILE_PITCH(D);
	attention_block block = attention_block_at(shape, S::ROWS, true);
	attention_head head = attention_head_at(block.head, shape);
	const int warp_row = (int)(threadIdx.x / 32) * 16 * M, row = block.first + warp_row;
	const int last = min(block.first + S::ROWS, shape.T) - 1;
	held_rows<D, M> queries;
	mma_softmax<M> so_far;
	float results[M][D / 8][4] = {}, factors[M][2];

	for (int m = 0; m < M; m++)
		for (int half = 0; half < 2; half++) {
			so_far.most[m][half] = -INFINITY;
			so_far.sum[m][half] = 0;
		}
	qkv += head.qkv;
	tile_load<D, S::ROWS>(q, qkv, 3 * (size_t)shape.C, block.first, shape);
	load_keys<D>(k, v, qkv, 0, shape);
	for (int tile = 0; tile <= last / KEYS; tile++) {
		cp_async_wait<0>();
		__syncthreads(); /* the tile has come, and no warp reads the previous one any more */
		if (tile < last / KEYS)
			load_keys<D>(k, v, qkv, tile + 1, shape);
		if (tile == 0)
			queries.read(q, warp_row);
		const int key = tile * KEYS, at = tile % 2 * KEYS;
		if (key > row + 16 * M - 1)
			continue; /* all its keys are after all of the warp's queries */
		float scores[M][KEYS / 8][4];
		multiply_rows<D, M, KEYS>(scores, queries, k, at);
		if (key + KEYS - 1 > row)
			hide_later_keys<M, KEYS>(scores, row, key);
		soften<D, M, KEYS>(&so_far, scores, results, shape.scale * LOG2_E);
		multiply_columns<D, M, KEYS>(results, scores, v, at);
	}
	finish<M>(factors, lse + head.lse, so_far, row, shape);
	store_rows<D, M>(y + head.y, (size_t)shape.C, results, factors, row, shape);
}

template <class S>
static int forward(bf16 *y, float *lse, const bf16 *qkv, const attention_shape &shape, void *stream)
{
	return LAUNCH(mma_forward_kernel<S>, attention_blocks(shape, S::ROWS), MMA_THREADS,
		S::SHARED_BYTES, stream, y, lse, qkv, shape);
}

int attention_mma(void *y, float *lse, const void *qkv, const attention_shape &shape, void *stream)
{
	if (shape.D <= 64)
		return forward<mma_forward<64, 2>>((bf16 *)y, lse, (const bf16 *)qkv, shape, stream);
	return forward<mma_forward<128, 1>>((bf16 *)y, lse, (const bf16 *)qkv, shape, stream);
}
