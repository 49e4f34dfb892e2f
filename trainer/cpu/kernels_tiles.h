/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels over tiles that fit into the cache: small products, and causal attention in the manner of
 * FlashAttention (Dao et al., arXiv 2205.14135). Included once by each kernels_ISA.c, after
 * kernels_rows.h. */

#if VEC_BITS == 512
#define TILE_ROWS 8
#else
#define TILE_ROWS 4
#endif
#define TILE_VECS 2

/* Computes rows × vecs vectors of the result in registers; with part > 0, `part` floats of a single
 * vector. An element's sum runs over k alone, so it does not depend on the tile's shape. */
static inline __attribute__((always_inline)) void gemm_tile(const struct tile_gemm *p, int m, int n,
	int rows, int vecs, int part)
{
	vec sum[TILE_ROWS][TILE_VECS];
	const float *a = p->a + (size_t)m * p->a_row, *b = p->b + n;
	float *c = p->c + (size_t)m * p->c_row + n;

#pragma GCC unroll 8
	for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
		for (int v = 0; v < vecs; v++)
			sum[r][v] = !p->accumulate ? v_set(0)
				: part                 ? v_load_part(c + r * p->c_row, part)
									   : v_load(c + r * p->c_row + v * VL);
	for (int k = 0; k < p->k; k++, a += p->a_col, b += p->b_row) {
		vec right[TILE_VECS];

#pragma GCC unroll 8
		for (int v = 0; v < vecs; v++)
			right[v] = part ? v_load_part(b, part) : v_load(b + v * VL);
#pragma GCC unroll 8
		for (int r = 0; r < rows; r++) {
			vec left = v_set(a[r * p->a_row]);

#pragma GCC unroll 8
			for (int v = 0; v < vecs; v++)
				sum[r][v] = v_fma(left, right[v], sum[r][v]);
		}
	}
#pragma GCC unroll 8
	for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
		for (int v = 0; v < vecs; v++)
			if (part)
				v_store_part(c + r * p->c_row, sum[r][v], part);
			else
				v_store(c + r * p->c_row + v * VL, sum[r][v]);
}

static inline __attribute__((always_inline)) void gemm_columns(const struct tile_gemm *p, int n,
	int vecs, int part)
{
	int m = 0;

	for (; m + TILE_ROWS <= p->m; m += TILE_ROWS)
		gemm_tile(p, m, n, TILE_ROWS, vecs, part);
	for (; m < p->m; m++)
		gemm_tile(p, m, n, 1, vecs, part);
}

static void gemm(const struct tile_gemm *p)
{
	int n = 0;

	for (; n + TILE_VECS * VL <= p->n; n += TILE_VECS * VL)
		gemm_columns(p, n, TILE_VECS, 0);
	for (; n + VL <= p->n; n += VL)
		gemm_columns(p, n, 1, 0);
	if (n < p->n)
		gemm_columns(p, n, 1, p->n - n);
}

/* Scores are stored transposed, [keys, queries], so that each query has its own lane from the
 * scores to the sums. */
#define QUERIES ATTENTION_BLOCK
#define KEYS ATTENTION_BLOCK

/* out[size][QUERIES] = the rows of x (at most QUERIES, `row` apart), transposed and multiplied by
 * scale; zeros beyond. */
static void transpose_queries(float *out, const float *x, size_t row, int rows, int size,
	float scale)
{
	for (int d = 0; d < size; d++)
		for (int q = 0; q < QUERIES; q++)
			out[d * QUERIES + q] = q < rows ? x[q * row + d] * scale : 0;
}

/* Hides key j from the queries before it, in the block on the diagonal. */
static void hide_future(float *scores, int keys, float hidden)
{
	for (int j = 0; j < keys; j++)
		for (int q = 0; q < j; q++)
			scores[j * QUERIES + q] = hidden;
}

/* A block of queries' largest scores and sums of exponentials so far. */
struct softmax_state {
	float max[QUERIES], sum[QUERIES], rescale[QUERIES];
};

/* Turns scores into exponentials and adds them to the state; state->rescale becomes the factor by
 * which earlier sums shrink. */
static void softmax_block(struct softmax_state *state, float *scores, int keys)
{
	for (int q = 0; q < QUERIES; q += VL) {
		vec old = v_load(state->max + q), max = old, sum, rescale;

		for (int j = 0; j < keys; j++)
			max = v_max(v_load(scores + j * QUERIES + q), max);
		rescale = v_exp(old - max);
		sum = v_load(state->sum + q) * rescale;
		for (int j = 0; j < keys; j++) {
			vec e = v_exp(v_load(scores + j * QUERIES + q) - max);

			v_store(scores + j * QUERIES + q, e);
			sum += e;
		}
		v_store(state->max + q, max);
		v_store(state->sum + q, sum);
		v_store(state->rescale + q, rescale);
	}
}

static void scale_rows(float *y, size_t row, const float *factors, int rows, int size)
{
	for (int r = 0; r < rows; r++)
		for (int d = 0; d < size; d += VL)
			v_store_upto(y + r * row + d,
				v_load_upto(y + r * row + d, size - d) * v_set(factors[r]), size - d);
}

static int block_length(int first, int positions)
{
	return positions - first < ATTENTION_BLOCK ? positions - first : ATTENTION_BLOCK;
}

static void attend_queries(const struct attention_head *h, int first)
{
	float queries[ATTENTION_SIZE_MAX * QUERIES] __attribute__((aligned(64)));
	float scores[KEYS * QUERIES] __attribute__((aligned(64)));
	struct softmax_state state = { .sum = { 0 } };
	int rows = block_length(first, h->positions);
	float *y = h->y + (size_t)first * h->y_row;

	for (int q = 0; q < QUERIES; q++)
		state.max[q] = -INFINITY;
	transpose_queries(queries, h->q + (size_t)first * h->row, h->row, rows, h->size,
		1.0f / sqrtf((float)h->size));
	for (int key = 0; key <= first; key += KEYS) {
		int keys = block_length(key, h->positions);

		gemm(&(struct tile_gemm) { keys, QUERIES, h->size, h->k + (size_t)key * h->row, h->row, 1,
			queries, QUERIES, scores, QUERIES, false });
		if (key == first)
			hide_future(scores, keys, -INFINITY);
		softmax_block(&state, scores, keys);
		if (key > 0)
			scale_rows(y, h->y_row, state.rescale, rows, h->size);
		gemm(&(struct tile_gemm) { rows, h->size, keys, scores, 1, QUERIES,
			h->v + (size_t)key * h->row, h->row, y, h->y_row, key > 0 });
	}
	for (int q = 0; q < rows; q++) {
		h->lse[first + q] = state.max[q] + logf(state.sum[q]);
		state.rescale[q] = 1.0f / state.sum[q];
	}
	scale_rows(y, h->y_row, state.rescale, rows, h->size);
}

static void attention_head_forward(const struct attention_head *h)
{
	for (int first = 0; first < h->positions; first += QUERIES)
		attend_queries(h, first);
}

/* Turns the scores in `probabilities` into e^(score - lse), and dP in `dscores` into P·(dP -
 * delta). */
static void softmax_backward_block(float *probabilities, float *dscores, const float *lse,
	const float *delta, int keys)
{
	for (int q = 0; q < QUERIES; q += VL) {
		vec l = v_load(lse + q), d = v_load(delta + q);

		for (int j = 0; j < keys; j++) {
			vec p = v_exp(v_load(probabilities + j * QUERIES + q) - l);

			v_store(probabilities + j * QUERIES + q, p);
			v_store(dscores + j * QUERIES + q, p * (v_load(dscores + j * QUERIES + q) - d));
		}
	}
}

/* What a block of queries keeps while it goes through the blocks of keys, each [size][QUERIES] or
 * [KEYS][QUERIES]. */
struct query_block {
	float queries[ATTENTION_SIZE_MAX * QUERIES]; /* multiplied by the scale */
	float dy[ATTENTION_SIZE_MAX * QUERIES];
	float probabilities[KEYS * QUERIES];
	float dscores[KEYS * QUERIES];
	float lse[QUERIES], delta[QUERIES];
} __attribute__((aligned(64)));

static void query_block_begin(struct query_block *block, const struct attention_head *h, int first,
	int rows, float scale)
{
	const float *y = h->y + (size_t)first * h->y_row, *dy = h->dy + (size_t)first * h->y_row;

	transpose_queries(block->queries, h->q + (size_t)first * h->row, h->row, rows, h->size, scale);
	transpose_queries(block->dy, dy, h->y_row, rows, h->size, 1);
	for (int q = 0; q < QUERIES; q++) {
		float delta = 0;

		for (int d = 0; q < rows && d < h->size; d++)
			delta = fmaf(dy[q * h->y_row + d], y[q * h->y_row + d], delta);
		block->delta[q] = delta;
		block->lse[q] = q < rows ? h->lse[first + q] : 0;
	}
}

static void attend_keys_backward(struct query_block *block, const struct attention_head *h,
	int first, int rows, int key)
{
	int keys = block_length(key, h->positions);
	size_t at_queries = (size_t)first * h->row, at_keys = (size_t)key * h->row;
	bool later = first > key; /* the diagonal block is the first with these keys */

	gemm(&(struct tile_gemm) { keys, QUERIES, h->size, h->k + at_keys, h->row, 1, block->queries,
		QUERIES, block->probabilities, QUERIES, false });
	if (key == first)
		hide_future(block->probabilities, keys, -INFINITY);
	gemm(&(struct tile_gemm) { keys, QUERIES, h->size, h->v + at_keys, h->row, 1, block->dy,
		QUERIES, block->dscores, QUERIES, false });
	softmax_backward_block(block->probabilities, block->dscores, block->lse, block->delta, keys);
	gemm(&(struct tile_gemm) { keys, h->size, rows, block->probabilities, QUERIES, 1,
		h->dy + (size_t)first * h->y_row, h->y_row, h->dv + at_keys, h->row, later });
	gemm(&(struct tile_gemm) { keys, h->size, rows, block->dscores, QUERIES, 1, h->q + at_queries,
		h->row, h->dk + at_keys, h->row, later });
	gemm(&(struct tile_gemm) { rows, h->size, keys, block->dscores, 1, QUERIES, h->k + at_keys,
		h->row, h->dq + at_queries, h->row, key > 0 });
}

static void attention_head_backward(const struct attention_head *h)
{
	struct query_block block;
	float scale = 1.0f / sqrtf((float)h->size), scales[QUERIES];

	for (int q = 0; q < QUERIES; q++)
		scales[q] = scale;
	for (int first = 0; first < h->positions; first += QUERIES) {
		int rows = block_length(first, h->positions);

		query_block_begin(&block, h, first, rows, scale);
		for (int key = 0; key <= first; key += KEYS)
			attend_keys_backward(&block, h, first, rows, key);
		scale_rows(h->dq + (size_t)first * h->row, h->row, scales, rows, h->size);
	}
	for (int key = 0; key < h->positions; key += KEYS)
		scale_rows(h->dk + (size_t)key * h->row, h->row, scales, block_length(key, h->positions),
			h->size);
}
