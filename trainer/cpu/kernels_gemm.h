/* SPDX-License-Identifier: Apache-2.0 */
/* A product that is too large for the cache. It copies the operands block by block into memory
 * where the tiles of kernels_tiles.h read them in order (Goto and van de Geijn, "Anatomy of
 * high-performance matrix multiplication", 2008). Included once by each kernels_ISA.c, after
 * kernels_tiles.h. */

#define DEPTH 256  /* elements of a block along k */
#define HEIGHT 256 /* rows of a block of a; with DEPTH floats a row, 256 KB */
#define STRIP 64   /* columns of a block of b: 64 KB */
#define PANEL 8    /* rows of a transposed a that are stored together */

typedef float quad __attribute__((vector_size(16)));
typedef int32_t quad_places __attribute__((vector_size(16)));

static inline quad quad_load(const float *p)
{
	quad q;
	memcpy(&q, p, sizeof(q));
	return q;
}
static inline void quad_store(float *p, quad q)
{
	memcpy(p, &q, sizeof(q));
}

/* to[j·to_row + i] = from[i·from_row + j] for 4 × 4 elements. */
static inline void transpose_4(float *to, size_t to_row, const float *from, size_t from_row)
{
	quad a = quad_load(from), b = quad_load(from + from_row);
	quad c = quad_load(from + 2 * from_row), d = quad_load(from + 3 * from_row);
	quad ab = __builtin_shuffle(a, b, (quad_places) { 0, 4, 1, 5 }),
		 AB = __builtin_shuffle(a, b, (quad_places) { 2, 6, 3, 7 });
	quad cd = __builtin_shuffle(c, d, (quad_places) { 0, 4, 1, 5 }),
		 CD = __builtin_shuffle(c, d, (quad_places) { 2, 6, 3, 7 });

	quad_store(to, __builtin_shuffle(ab, cd, (quad_places) { 0, 1, 4, 5 }));
	quad_store(to + to_row, __builtin_shuffle(ab, cd, (quad_places) { 2, 3, 6, 7 }));
	quad_store(to + 2 * to_row, __builtin_shuffle(AB, CD, (quad_places) { 0, 1, 4, 5 }));
	quad_store(to + 3 * to_row, __builtin_shuffle(AB, CD, (quad_places) { 2, 3, 6, 7 }));
}

/* to[columns, rows] = the transpose of from[rows, columns]. */
static void transpose(float *to, size_t to_row, const float *from, size_t from_row, int rows,
	int columns)
{
	for (int i = 0; i < rows; i += 4)
		for (int j = 0; j < columns; j += 4) {
			if (i + 4 <= rows && j + 4 <= columns) {
				transpose_4(to + j * to_row + i, to_row, from + i * from_row + j, from_row);
				continue;
			}
			for (int r = i; r < rows && r < i + 4; r++)
				for (int c = j; c < columns && c < j + 4; c++)
					to[c * to_row + r] = from[r * from_row + c];
		}
}

static void copy_rows(float *to, size_t to_row, const float *from, size_t from_row, int rows,
	int columns)
{
	for (int r = 0; r < rows; r++)
		memcpy(to + r * to_row, from + r * from_row, (size_t)columns * sizeof(*to));
}

/* Copies a block of a: [rows][DEPTH], or as panels [depth][PANEL] where a is transposed. */
static void copy_a(float *to, const struct block_gemm *p, int row, int rows, int k, int depth)
{
	if (p->a_col == 1) {
		copy_rows(to, DEPTH, p->a + row * p->a_row + k, p->a_row, rows, depth);
		return;
	}
	for (int r = 0; r < rows; r += PANEL)
		copy_rows(to + r * DEPTH, PANEL, p->a + k * p->a_col + row + r, p->a_col, depth,
			rows - r < PANEL ? rows - r : PANEL);
}

/* Copies a strip of b: [depth][STRIP]. */
static void copy_b(float *to, const struct block_gemm *p, int k, int depth, int column, int columns)
{
	if (p->b_col == 1)
		copy_rows(to, STRIP, p->b + k * p->b_row + column, p->b_row, depth, columns);
	else
		transpose(to, STRIP, p->b + column * p->b_col + k, p->b_col, columns, depth);
}

static int lesser(int a, int b)
{
	return a < b ? a : b;
}

static void multiply_strip(const struct block_gemm *p, const float *a, const float *b, int row,
	int rows, int column, int columns, int depth, bool accumulate)
{
	int step = p->a_col == 1 ? rows : PANEL;

	for (int r = 0; r < rows; r += step)
		gemm(&(struct tile_gemm) { lesser(step, rows - r), columns, depth, a + r * DEPTH,
			p->a_col == 1 ? DEPTH : 1, p->a_col == 1 ? 1 : PANEL, b, STRIP,
			p->c + (size_t)(row + r) * p->c_row + column, p->c_row, accumulate });
}

static void gemm_block(const struct block_gemm *p)
{
	float a[HEIGHT * DEPTH] __attribute__((aligned(64))),
		b[DEPTH * STRIP] __attribute__((aligned(64)));

	for (int row = 0; row < p->m; row += HEIGHT) {
		int rows = lesser(HEIGHT, p->m - row);

		for (int k = 0; k < p->k; k += DEPTH) {
			int depth = lesser(DEPTH, p->k - k);

			copy_a(a, p, row, rows, k, depth);
			for (int column = 0; column < p->n; column += STRIP) {
				int columns = lesser(STRIP, p->n - column);

				copy_b(b, p, k, depth, column, columns);
				multiply_strip(p, a, b, row, rows, column, columns, depth, p->accumulate || k > 0);
			}
		}
	}
}

const struct kernels KERNELS = {
	.bias = bias_rows,
	.bias_relu = bias_relu_rows,
	.bias_gelu = bias_gelu_rows,
	.relu_backward = relu_backward_rows,
	.gelu_backward = gelu_backward_rows,
	.column_sums = column_sums,
	.layernorm = layernorm_rows,
	.layernorm_backward = layernorm_backward_rows,
	.batchnorm_moments = batchnorm_moments,
	.batchnorm_relu = batchnorm_relu_row,
	.batchnorm_sums = batchnorm_sums,
	.batchnorm_backward = batchnorm_backward_row,
	.cross_entropy = cross_entropy_row,
	.gemm = gemm,
	.gemm_block = gemm_block,
	.attention = attention_head_forward,
	.attention_backward = attention_head_backward,
	.adamw = adamw_run,
	.square_sum = square_sum_block,
	.add = add_run,
	.row_products = row_products,
	.weighted_rows = weighted_rows,
};
