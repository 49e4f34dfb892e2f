/* SPDX-License-Identifier: Apache-2.0 */
/* Causal attention in fp32 arithmetic, for any width of a head.
 *
 * A block has 32 rows of one head and goes over tiles of 32 rows of the other side. Four
 * neighbouring threads share a row: each has every fourth column of the scores, and the columns 16i
 * + 4·part to 16i + 4·part + 3 of the results. A block computes 64 columns of the results. Where a
 * head is wider, blockIdx.y says which, and each such block computes the scores again. */
#include "trainer/cuda/kernels/attention_shape.h"

#define THREADS 128
#define TILE 32           /* rows */
#define CHUNK 64          /* columns */
#define PITCH (CHUNK + 4) /* of a tile, so that 8 rows lie in different banks */
#define SCORES (TILE / 4) /* of a thread, in its row */
#define SCORE_PITCH (TILE + 4)
#define RESULTS (CHUNK / 16) /* of a thread, in fours */

/* Rows of one head, read four columns at a time. */
struct alignas(16) plain_tile {
	float at[TILE * PITCH];
};

/* Scores; every thread reads its whole row. */
struct plain_weights {
	float at[TILE * SCORE_PITCH];
};

/* This thread's row of the block's tile, and its quarter of the row. */
struct plain_place {
	int row, part;
};

__device__ __forceinline__ plain_place plain_place_of_thread(void)
{
	return { (int)(threadIdx.x / 4), (int)(threadIdx.x % 4) };
}

/* tile = rows [first, first + TILE) and columns [column, column + CHUNK) of a head; zeros
 * outside. */
template <class E>
__device__ __forceinline__ void plain_load(plain_tile *tile, const E *head, size_t stride,
	int first, int column, const attention_shape &shape)
{
	for (int i = (int)threadIdx.x; i < TILE * CHUNK; i += THREADS) {
		int row = i / CHUNK, d = i % CHUNK;
		bool inside = first + row < shape.T && column + d < shape.D;
		tile->at[row * PITCH + d] =
			inside ? float_of(head[(size_t)(first + row) * stride + (size_t)(column + d)]) : 0.0f;
	}
}

/* scores[j] += a's row · b's row part + 4j */
__device__ __forceinline__ void plain_dots(float scores[SCORES], const plain_tile *a,
	const plain_tile *b, plain_place at)
{
	for (int d = 0; d < CHUNK; d += 4) {
		float4 x = *(const float4 *)&a->at[at.row * PITCH + d];
		UNROLL
		for (int j = 0; j < SCORES; j++) {
			float4 z = *(const float4 *)&b->at[(at.part + 4 * j) * PITCH + d];
			scores[j] = fmaf(x.w, z.w, fmaf(x.z, z.z, fmaf(x.y, z.y, fmaf(x.x, z.x, scores[j]))));
		}
	}
}

/* results += the row's weights · b's rows. The row's four threads, all in one warp, have written
 * the weights. */
__device__ __forceinline__ void plain_weigh(float4 results[RESULTS], const plain_weights *weights,
	const plain_tile *b, plain_place at)
{
	for (int s = 0; s < TILE; s++) {
		float w = weights->at[at.row * SCORE_PITCH + s];
		UNROLL
		for (int i = 0; i < RESULTS; i++) {
			float4 z = *(const float4 *)&b->at[s * PITCH + 16 * i + 4 * at.part];
			results[i] = make_float4(fmaf(w, z.x, results[i].x), fmaf(w, z.y, results[i].y),
				fmaf(w, z.z, results[i].z), fmaf(w, z.w, results[i].w));
		}
	}
}

__device__ __forceinline__ void plain_write(plain_weights *weights, const float scores[SCORES],
	plain_place at)
{
	UNROLL
	for (int j = 0; j < SCORES; j++)
		weights->at[at.row * SCORE_PITCH + at.part + 4 * j] = scores[j];
}

/* Writes a row of results, times `factor`. */
template <class E>
__device__ __forceinline__ void plain_store(E *head, size_t stride, const float4 results[RESULTS],
	float factor, int row, int column, plain_place at, const attention_shape &shape)
{
	if (row >= shape.T)
		return;
	for (int i = 0; i < RESULTS; i++) {
		const float x[4] = { results[i].x, results[i].y, results[i].z, results[i].w };
		for (int e = 0; e < 4; e++) {
			int d = column + 16 * i + 4 * at.part + e;
			if (d < shape.D)
				head[(size_t)row * stride + (size_t)d] = of_float<E>(x[e] * factor);
		}
	}
}

/* Combine the four threads of a row; every thread gets the same bits. */
__device__ __forceinline__ float plain_row_max(float x)
{
	x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
	return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

__device__ __forceinline__ float plain_row_sum(float x)
{
	x += __shfl_xor_sync(0xffffffffu, x, 1);
	return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

/* A row's softmax so far: its largest score, and the sum of exponentials relative to it. */
struct plain_softmax {
	float most, sum;
};

/* Turns a tile's scores into weights relative to the row's largest score now, and rescales
 * `results`. */
__device__ __forceinline__ void plain_soften(plain_softmax *so_far, float scores[SCORES],
	float4 results[RESULTS], int row, int first, plain_place at, float scale)
{
	float most = so_far->most, sum = 0;
	for (int j = 0; j < SCORES; j++) {
		scores[j] = first + at.part + 4 * j <= row ? scores[j] * scale : -INFINITY;
		most = fmaxf(most, scores[j]);
	}
	most = plain_row_max(most);
	for (int j = 0; j < SCORES; j++) {
		scores[j] = expf(scores[j] - most);
		sum += scores[j];
	}
	float decay = expf(so_far->most - most); /* finite: the first tile has key 0 */
	for (int i = 0; i < RESULTS; i++)
		results[i] = make_float4(results[i].x * decay, results[i].y * decay, results[i].z * decay,
			results[i].w * decay);
	*so_far = { most, fmaf(so_far->sum, decay, plain_row_sum(sum)) };
}

/* y[B,T,C], lse[B,H,T] from qkv[B,T,3C]; grid: query tiles × chunks of a head's columns */
template <class E>
__global__ void LAUNCH_BOUNDS(THREADS)
	plain_forward(E *y, float *lse, const E *qkv, attention_shape shape)
{
	SHARED(plain_tile, q, 1);
	SHARED(plain_tile, k, 1);
	SHARED(plain_tile, v, 1);
	SHARED(plain_weights, weights, 1);
	const int chunks = (int)gridDim.y, own = (int)blockIdx.y;
	const size_t C = (size_t)shape.C, stride = 3 * C;
	attention_block block = attention_block_at(shape, TILE, true);
	attention_head head = attention_head_at(block.head, shape);
	plain_place at = plain_place_of_thread();
	plain_softmax so_far = { -INFINITY, 0 };
	float4 results[RESULTS] = {};

	qkv += head.qkv;
	for (int first = 0; first <= block.first; first += TILE) {
		float scores[SCORES] = {};
		for (int c = 1; c <= chunks; c++) {
			int column = (own + c) % chunks * CHUNK;
			__syncthreads();
			plain_load(q, qkv, stride, block.first, column, shape);
			plain_load(k, qkv + C, stride, first, column, shape);
			if (c == chunks)
				plain_load(v, qkv + 2 * C, stride, first, own * CHUNK, shape);
			__syncthreads();
			plain_dots(scores, q, k, at);
		}
		plain_soften(&so_far, scores, results, block.first + at.row, first, at, shape.scale);
		plain_write(weights, scores, at);
		__syncwarp();
		plain_weigh(results, weights, v, at);
	}
	plain_store(y + head.y, C, results, 1.0f / so_far.sum, block.first + at.row, own * CHUNK, at,
		shape);
	if (own == 0 && at.part == 0 && block.first + at.row < shape.T)
		lse[head.lse + (size_t)(block.first + at.row)] = so_far.most + logf(so_far.sum);
}

/* Turns scores into weights p = exp(score - lse), and dp into the scores' gradients p·(dp -
 * sum). */
__device__ __forceinline__ void plain_gradient(float *p, float *ds, bool inside, float scale,
	float lse, float sum)
{
	float weight = inside ? expf(fmaf(*p, scale, -lse)) : 0.0f;
	*p = weight;
	*ds = inside ? weight * (*ds - sum) : 0.0f;
}

/* The sum of dy ⊙ y over the columns of one row of a head, computed by the row's four threads. */
template <class E>
__device__ __forceinline__ float plain_sum(const E *dy, const E *y, int row, plain_place at,
	const attention_shape &shape)
{
	float sum = 0;
	for (int d = at.part; row < shape.T && d < shape.D; d += 4) {
		size_t i = (size_t)row * (size_t)shape.C + (size_t)d;
		sum = fmaf(float_of(dy[i]), float_of(y[i]), sum);
	}
	return plain_row_sum(sum);
}

/* Queries, keys, values and dy of one chunk of columns. */
struct plain_tiles {
	plain_tile *q, *k, *v, *g;
};

/* p = queries · keys and ds = dy · values over all columns: a row is a query (or a key), and meets
 * all of the other side's. The block's own columns come last, so that the tiles still hold them
 * when they are needed again. */
template <bool BY_QUERY, class E>
__device__ __forceinline__ void plain_gemms(float p[SCORES], float ds[SCORES],
	const plain_tiles &tile, const E *qkv, const E *dy, int query, int key, plain_place at,
	const attention_shape &shape)
{
	const int chunks = (int)gridDim.y, own = (int)blockIdx.y;
	const size_t C = (size_t)shape.C, stride = 3 * C;
	for (int c = 1; c <= chunks; c++) {
		int column = (own + c) % chunks * CHUNK;
		__syncthreads();
		plain_load(tile.q, qkv, stride, query, column, shape);
		plain_load(tile.k, qkv + C, stride, key, column, shape);
		plain_load(tile.v, qkv + 2 * C, stride, key, column, shape);
		plain_load(tile.g, dy, C, query, column, shape);
		__syncthreads();
		plain_dots(p, BY_QUERY ? tile.q : tile.k, BY_QUERY ? tile.k : tile.q, at);
		plain_dots(ds, BY_QUERY ? tile.g : tile.v, BY_QUERY ? tile.v : tile.g, at);
	}
}

/* dq within dqkv[B,T,3C], and sums[B,H,T]; grid as of the forward pass */
template <class E>
__global__ void LAUNCH_BOUNDS(THREADS) plain_backward_query(E *dqkv, float *sums, const E *dy,
	const E *qkv, const E *y, const float *lse, attention_shape shape)
{
	SHARED(plain_tile, q, 1);
	SHARED(plain_tile, k, 1);
	SHARED(plain_tile, v, 1);
	SHARED(plain_tile, g, 1);
	SHARED(plain_weights, weights, 1);
	const int own = (int)blockIdx.y;
	const size_t C = (size_t)shape.C, stride = 3 * C;
	attention_block block = attention_block_at(shape, TILE, true);
	attention_head head = attention_head_at(block.head, shape);
	plain_place at = plain_place_of_thread();
	const int row = block.first + at.row;
	float4 results[RESULTS] = {};

	qkv += head.qkv;
	dy += head.y;
	float sum = plain_sum(dy, y + head.y, row, at, shape);
	float row_lse = row < shape.T ? lse[head.lse + (size_t)row] : 0.0f;
	for (int first = 0; first <= block.first; first += TILE) {
		float p[SCORES] = {}, ds[SCORES] = {};
		plain_gemms<true>(p, ds, { q, k, v, g }, qkv, dy, block.first, first, at, shape);
		for (int j = 0; j < SCORES; j++)
			plain_gradient(&p[j], &ds[j], first + at.part + 4 * j <= row, shape.scale, row_lse,
				sum);
		plain_write(weights, ds, at);
		__syncwarp();
		plain_weigh(results, weights, k, at);
	}
	plain_store(dqkv + head.qkv, stride, results, shape.scale, row, own * CHUNK, at, shape);
	if (own == 0 && at.part == 0 && row < shape.T)
		sums[head.lse + (size_t)row] = sum;
}

/* dk and dv within dqkv[B,T,3C]: a block has 32 keys and goes over the queries from there on */
template <class E>
__global__ void LAUNCH_BOUNDS(THREADS) plain_backward_key(E *dqkv, const float *sums, const E *dy,
	const E *qkv, const float *lse, attention_shape shape)
{
	SHARED(plain_tile, q, 1);
	SHARED(plain_tile, k, 1);
	SHARED(plain_tile, v, 1);
	SHARED(plain_tile, g, 1);
	SHARED(plain_weights, p_weights, 1);
	SHARED(plain_weights, ds_weights, 1);
	const int own = (int)blockIdx.y;
	const size_t C = (size_t)shape.C, stride = 3 * C;
	attention_block block = attention_block_at(shape, TILE, false);
	attention_head head = attention_head_at(block.head, shape);
	plain_place at = plain_place_of_thread();
	const int row = block.first + at.row;
	float4 dk[RESULTS] = {}, dv[RESULTS] = {};

	qkv += head.qkv;
	dy += head.y;
	for (int first = block.first; first < shape.T; first += TILE) {
		float p[SCORES] = {}, ds[SCORES] = {};
		plain_gemms<false>(p, ds, { q, k, v, g }, qkv, dy, first, block.first, at, shape);
		for (int j = 0; j < SCORES; j++) {
			int query = first + at.part + 4 * j;
			bool inside = row <= query && query < shape.T;
			size_t i = head.lse + (size_t)(inside ? query : 0);
			plain_gradient(&p[j], &ds[j], inside, shape.scale, lse[i], sums[i]);
		}
		plain_write(p_weights, p, at);
		plain_write(ds_weights, ds, at);
		__syncwarp();
		plain_weigh(dv, p_weights, g, at);
		plain_weigh(dk, ds_weights, q, at);
	}
	plain_store(dqkv + head.qkv + C, stride, dk, shape.scale, row, own * CHUNK, at, shape);
	plain_store(dqkv + head.qkv + 2 * C, stride, dv, 1.0f, row, own * CHUNK, at, shape);
}

static dim3 plain_grid(const attention_shape &shape)
{
	return dim3(attention_blocks(shape, TILE), (unsigned int)((shape.D + CHUNK - 1) / CHUNK));
}

template <class E>
static int forward(void *y, float *lse, const void *qkv, const attention_shape &shape, void *stream)
{
	return LAUNCH(plain_forward<E>, plain_grid(shape), THREADS, 0, stream, (E *)y, lse,
		(const E *)qkv, shape);
}

template <class E>
static int backward(const attention_gradients &g, const attention_shape &shape, void *stream)
{
	E *dqkv = (E *)g.dqkv;
	const E *dy = (const E *)g.dy, *qkv = (const E *)g.qkv, *y = (const E *)g.y;
	const dim3 grid = plain_grid(shape);
	int error = LAUNCH(plain_backward_query<E>, grid, THREADS, 0, stream, dqkv, g.sums, dy, qkv, y,
		g.lse, shape);

	return error ? error
				 : LAUNCH(plain_backward_key<E>, grid, THREADS, 0, stream, dqkv, g.sums, dy, qkv,
					 g.lse, shape);
}

int attention_plain(void *y, float *lse, const void *qkv, const attention_shape &shape,
	cuda_type type, void *stream)
{
	return type == CUDA_BF16 ? forward<bf16>(y, lse, qkv, shape, stream)
							 : forward<float>(y, lse, qkv, shape, stream);
}

int attention_plain_backward(const attention_gradients &g, const attention_shape &shape,
	cuda_type type, void *stream)
{
	return type == CUDA_BF16 ? backward<bf16>(g, shape, stream) : backward<float>(g, shape, stream);
}
