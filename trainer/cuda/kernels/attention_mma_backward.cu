/* SPDX-License-Identifier: Apache-2.0 */
/* The backward pass of attention on the tensor cores, for bf16 and heads of up to 128 columns. One
 * kernel computes dq, with query rows in the warps as in the forward pass; then one computes dk and
 * dv, with key rows in the warps. So each result has one writer and one order of sums. Both compute
 * the scores again, which costs two products of seven more than sums by atomics, whose order
 * varies.
 *
 * With p = exp(score - lse), dp = dy·vᵀ and sum = Σ dy ⊙ y: dv = pᵀ·dy, ds = p ⊙ (dp - sum), dq =
 * ds·k·scale and dk = dsᵀ·q·scale. */
#include "trainer/cuda/kernels/attention_tile.h"

#define STEP 32 /* rows of the other side that a warp computes at a time */

template <int COLUMNS, int FRAGMENTS> struct mma_backward {
	static constexpr int D = COLUMNS, M = FRAGMENTS, ROWS = MMA_WARPS * 16 * M;
	static constexpr int TILE = 4096 / D; /* rows of the other side in shared memory, twice */
	static constexpr size_t SHARED_BYTES =
		(size_t)(2 * ROWS + 4 * TILE) * TILE_PITCH(D) * sizeof(bf16);
};

/* Starts to copy tile number `tile` of two operands, each into one half of its buffer. */
template <int D, int TILE>
__device__ __forceinline__ void load_pair(bf16 *a, const bf16 *from_a, size_t stride_a, bf16 *b,
	const bf16 *from_b, size_t stride_b, int tile, const attention_shape &shape)
{
	tile_load<D, TILE>(a + tile % 2 * TILE * TILE_PITCH(D), from_a, stride_a, tile * TILE, shape);
	tile_load<D, TILE>(b + tile % 2 * TILE * TILE_PITCH(D), from_b, stride_b, tile * TILE, shape);
	cp_async_commit();
}

/* The sum over a row's columns of dy (in shared memory) times y (in global memory); 0 below the
 * last row. */
template <int D>
__device__ __forceinline__ float row_sum(bf16 *g, const bf16 *y, int row, int at,
	const attention_shape &shape)
{
	float sum = 0;
	for (int piece = 0; at < shape.T && piece * 8 < shape.D; piece++) {
		float left[8], right[8];
		load8(left, tile_at<D>(g, row, piece * 8));
		load8(right, y + (size_t)at * (size_t)shape.C + (size_t)(piece * 8));
		UNROLL
		for (int i = 0; i < 8; i++)
			sum = fmaf(left[i], right[i], sum);
	}
	return sum;
}

/* Computes the block's row sums, one a thread, for this kernel and for the next one. */
template <int D, int ROWS>
__device__ __forceinline__ void sum_rows(float *block_sums, float *sums, bf16 *g, const bf16 *y,
	int first, const attention_shape &shape)
{
	const int row = (int)threadIdx.x;

	if (row >= ROWS)
		return;
	block_sums[row] = row_sum<D>(g, y, row, first + row, shape);
	if (first + row < shape.T)
		sums[first + row] = block_sums[row];
}

/* Numbers of a warp's query rows, two of every 16 in a lane: -lse in powers of two, and the row
 * sums. */
template <int M> struct row_numbers {
	float lse[M][2], sums[M][2];
};

template <int M>
__device__ __forceinline__ row_numbers<M> read_rows(const float *lse, const float *warp_sums,
	int row, const attention_shape &shape)
{
	row_numbers<M> numbers;
	UNROLL
	for (int m = 0; m < M; m++)
		UNROLL
	for (int half = 0; half < 2; half++) {
		const int i = 16 * m + 8 * half + lane_of_thread() / 4;
		numbers.lse[m][half] = row + i < shape.T ? -LOG2_E * lse[row + i] : 0.0f;
		numbers.sums[m][half] = warp_sums[i];
	}
	return numbers;
}

/* Turns dp, of queries × keys, into ds. `scale` is that of the scores times log2(e). */
template <int M>
__device__ __forceinline__ void differentiate_queries(float ds[M][STEP / 8][4],
	const float scores[M][STEP / 8][4], const row_numbers<M> &numbers, int row, int key,
	float scale)
{
	row += lane_of_thread() / 4;
	key += lane_of_thread() % 4 * 2;
	UNROLL
	for (int m = 0; m < M; m++)
		UNROLL
	for (int n = 0; n < STEP / 8; n++)
		UNROLL
	for (int i = 0; i < 4; i++) {
		bool seen = key + 8 * n + i % 2 <= row + 16 * m + i / 2 * 8;
		float p = seen ? exp2_approx(fmaf(scores[m][n][i], scale, numbers.lse[m][i / 2])) : 0.0f;
		ds[m][n][i] = p * (ds[m][n][i] - numbers.sums[m][i / 2]);
	}
}

template <int M> __device__ __forceinline__ void set_factors(float factors[M][2], float factor)
{
	UNROLL
	for (int m = 0; m < M; m++)
		factors[m][0] = factors[m][1] = factor;
}

/* dq within dqkv[B,T,3C], and sums[B,H,T] */
template <class S>
__global__ void LAUNCH_BOUNDS(MMA_THREADS) mma_backward_query(bf16 *dqkv, float *sums,
	const bf16 *dy, const bf16 *qkv, const bf16 *y, const float *lse, attention_shape shape)
{
	constexpr int D = S::D, M = S::M, TILE = S::TILE;
	SHARED_DYNAMIC(bf16, q);
	SHARED(float, block_sums, S::ROWS);
	bf16 *g = q + S::ROWS * TILE_PITCH(D), *k = g + S::ROWS * TILE_PITCH(D),
		 *v = k + 2 * TILE * TILE_PITCH(D);
	const size_t C = (size_t)shape.C;
	attention_block block = attention_block_at(shape, S::ROWS, true);
	attention_head head = attention_head_at(block.head, shape);
	const int warp_row = (int)(threadIdx.x / 32) * 16 * M, row = block.first + warp_row;
	const int last = min(block.first + S::ROWS, shape.T) - 1;
	held_rows<D, M> queries, gradients;
	float results[M][D / 8][4] = {}, factors[M][2];

	qkv += head.qkv;
	tile_load<D, S::ROWS>(q, qkv, 3 * C, block.first, shape);
	tile_load<D, S::ROWS>(g, dy + head.y, C, block.first, shape);
	load_pair<D, TILE>(k, qkv + C, 3 * C, v, qkv + 2 * C, 3 * C, 0, shape);
	cp_async_wait<0>();
	__syncthreads();
	sum_rows<D, S::ROWS>(block_sums, sums + head.lse, g, y + head.y, block.first, shape);
	__syncthreads();
	queries.read(q, warp_row);
	gradients.read(g, warp_row);
	const row_numbers<M> numbers = read_rows<M>(lse + head.lse, block_sums + warp_row, row, shape);
	for (int tile = 0; tile <= last / TILE; tile++) {
		cp_async_wait<0>();
		__syncthreads(); /* the tile has come, and no warp reads the previous one any more */
		if (tile < last / TILE)
			load_pair<D, TILE>(k, qkv + C, 3 * C, v, qkv + 2 * C, 3 * C, tile + 1, shape);
		for (int step = 0; step < TILE; step += STEP) {
			const int key = tile * TILE + step, at = tile % 2 * TILE + step;
			if (key > row + 16 * M - 1)
				break; /* all these keys are after all of the warp's queries */
			float scores[M][STEP / 8][4], ds[M][STEP / 8][4];
			multiply_rows<D, M, STEP>(scores, queries, k, at);
			multiply_rows<D, M, STEP>(ds, gradients, v, at);
			differentiate_queries<M>(ds, scores, numbers, row, key, shape.scale * LOG2_E);
			multiply_columns<D, M, STEP>(results, ds, k, at);
		}
	}
	set_factors<M>(factors, shape.scale);
	store_rows<D, M>(dqkv + head.qkv, 3 * C, results, factors, row, shape);
}

/* Numbers of the queries of one tile: -lse in powers of two, and the row sums. 0 where there is no
 * query: its q and dy are 0, so its weight does not matter. A thread fetches at most one number. */
template <int TILE> struct query_numbers {
	float lse[TILE], sums[TILE];
};

template <int TILE>
__device__ __forceinline__ float fetch_number(const float *lse, const float *sums, int tile,
	const attention_shape &shape)
{
	static_assert(2 * TILE <= MMA_THREADS, "a thread fetches one number at most");
	int at = tile * TILE + (int)threadIdx.x % TILE;
	if ((int)threadIdx.x < TILE)
		return at < shape.T ? -LOG2_E * lse[at] : 0.0f;
	return (int)threadIdx.x < 2 * TILE && at < shape.T ? sums[at] : 0.0f;
}

template <int TILE>
__device__ __forceinline__ void put_number(query_numbers<TILE> *numbers, float x)
{
	if ((int)threadIdx.x < TILE)
		numbers->lse[threadIdx.x] = x;
	else if ((int)threadIdx.x < 2 * TILE)
		numbers->sums[threadIdx.x - TILE] = x;
}

/* Turns scores and dp, both of keys × queries, into p and ds. `query` is the first query, number
 * `step` of its tile. */
template <int M, int TILE>
__device__ __forceinline__ void differentiate_keys(float scores[M][STEP / 8][4],
	float ds[M][STEP / 8][4], const query_numbers<TILE> *numbers, int row, int query, int step,
	float scale)
{
	const int lane_row = lane_of_thread() / 4, lane_column = lane_of_thread() % 4 * 2;
	UNROLL
	for (int n = 0; n < STEP / 8; n++)
		UNROLL
	for (int odd = 0; odd < 2; odd++) {
		const int column = 8 * n + lane_column + odd;
		const float lse = numbers->lse[step + column], sum = numbers->sums[step + column];
		UNROLL
		for (int m = 0; m < M; m++)
			UNROLL
		for (int i = odd; i < 4; i += 2) {
			bool seen = row + 16 * m + i / 2 * 8 + lane_row <= query + column;
			float p = seen ? exp2_approx(fmaf(scores[m][n][i], scale, lse)) : 0.0f;
			scores[m][n][i] = p;
			ds[m][n][i] = p * (ds[m][n][i] - sum);
		}
	}
}

/* dk and dv within dqkv[B,T,3C]; a block goes over the queries from its first key on */
template <class S>
__global__ void LAUNCH_BOUNDS(MMA_THREADS) mma_backward_key(bf16 *dqkv, const float *sums,
	const bf16 *dy, const bf16 *qkv, const float *lse, attention_shape shape)
{
	constexpr int D = S::D, M = S::M, TILE = S::TILE;
	SHARED_DYNAMIC(bf16, k);
	SHARED(query_numbers<TILE>, numbers, 2);
	bf16 *v = k + S::ROWS * TILE_PITCH(D), *q = v + S::ROWS * TILE_PITCH(D),
		 *g = q + 2 * TILE * TILE_PITCH(D);
	const size_t C = (size_t)shape.C;
	attention_block block = attention_block_at(shape, S::ROWS, false);
	attention_head head = attention_head_at(block.head, shape);
	const int warp_row = (int)(threadIdx.x / 32) * 16 * M, row = block.first + warp_row;
	const int first_tile = block.first / TILE, last_tile = (shape.T - 1) / TILE;
	const tile_operand<D, M> keys = { k, warp_row }, values = { v, warp_row };
	float dk[M][D / 8][4] = {}, dv[M][D / 8][4] = {}, factors[M][2];

	qkv += head.qkv;
	dy += head.y;
	lse += head.lse;
	sums += head.lse;
	tile_load<D, S::ROWS>(k, qkv + C, 3 * C, block.first, shape);
	tile_load<D, S::ROWS>(v, qkv + 2 * C, 3 * C, block.first, shape);
	load_pair<D, TILE>(q, qkv, 3 * C, g, dy, C, first_tile, shape);
	float number = fetch_number<TILE>(lse, sums, first_tile, shape);
	for (int tile = first_tile; tile <= last_tile; tile++) {
		put_number<TILE>(&numbers[tile % 2], number);
		cp_async_wait<0>();
		__syncthreads();
		if (tile < last_tile) {
			load_pair<D, TILE>(q, qkv, 3 * C, g, dy, C, tile + 1, shape);
			number = fetch_number<TILE>(lse, sums, tile + 1, shape);
		}
		for (int step = 0; step < TILE; step += STEP) {
			const int query = tile * TILE + step, at = tile % 2 * TILE + step;
			if (query + STEP - 1 < row)
				continue; /* all these queries are before all of the warp's keys */
			float scores[M][STEP / 8][4], ds[M][STEP / 8][4];
			multiply_rows<D, M, STEP>(scores, keys, q, at);
			multiply_rows<D, M, STEP>(ds, values, g, at);
			differentiate_keys<M, TILE>(scores, ds, &numbers[tile % 2], row, query, step,
				shape.scale * LOG2_E);
			multiply_columns<D, M, STEP>(dv, scores, g, at);
			multiply_columns<D, M, STEP>(dk, ds, q, at);
		}
	}
	set_factors<M>(factors, 1.0f);
	store_rows<D, M>(dqkv + head.qkv + 2 * C, 3 * C, dv, factors, row, shape);
	set_factors<M>(factors, shape.scale);
	store_rows<D, M>(dqkv + head.qkv + C, 3 * C, dk, factors, row, shape);
}

template <class S>
static int backward(const attention_gradients &g, const attention_shape &shape, void *stream)
{
	bf16 *dqkv = (bf16 *)g.dqkv;
	const bf16 *dy = (const bf16 *)g.dy, *qkv = (const bf16 *)g.qkv, *y = (const bf16 *)g.y;
	const unsigned int blocks = attention_blocks(shape, S::ROWS);
	int error = LAUNCH(mma_backward_query<S>, blocks, MMA_THREADS, S::SHARED_BYTES, stream, dqkv,
		g.sums, dy, qkv, y, g.lse, shape);

	if (!error)
		error = LAUNCH(mma_backward_key<S>, blocks, MMA_THREADS, S::SHARED_BYTES, stream, dqkv,
			g.sums, dy, qkv, g.lse, shape);
	return error;
}

int attention_mma_backward(const attention_gradients &g, const attention_shape &shape, void *stream)
{
	if (shape.D <= 64)
		return backward<mma_backward<64, 2>>(g, shape, stream);
	return backward<mma_backward<128, 1>>(g, shape, stream);
}
