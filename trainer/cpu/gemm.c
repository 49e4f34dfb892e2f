/* SPDX-License-Identifier: Apache-2.0 */
/* Cuts matrix products into tiles; oneDNN computes each with one thread. oneDNN's own threading
 * would be as fast, but for some shapes it cuts k by the number of threads, and that changes the
 * result. */
#include "config.h"

#ifdef HAVE_DNNL
#include <dnnl.h>
#endif
#ifdef _OPENMP
#include <omp.h>
#endif

#include "trainer/cpu/kernels.h"
#include "trainer/cpu/gemm.h"

#define TILES 16 /* least number where the shape allows it, so that that many threads have work */

struct grid {
	int rows, columns; /* of a tile */
	int down, across;  /* number of tiles */
};

/* The size of tiles to start with, and how small they may become. oneDNN copies a transposed b once
 * for each row of tiles, so these tiles stay high; for others the size hardly matters. */
struct limits {
	int rows, columns, rows_min, columns_min;
};

static const struct limits plain_limits = { 256, 768, 32, 96 },
						   transposed_limits = { 512, 384, 256, 192 };

static int pieces(int length, int size)
{
	return (length + size - 1) / size;
}

/* The length of a tile when `length` is cut into `count` pieces: a multiple of `unit`. */
static int piece_length(int length, int count, int unit)
{
	return pieces(pieces(length, count), unit) * unit;
}

static struct grid grid_of(const struct gemm *p)
{
	const struct limits *l = p->b_transposed ? &transposed_limits : &plain_limits;
	struct grid g = {
		.rows = piece_length(p->m, pieces(p->m, l->rows), 8),
		.columns = piece_length(p->n, pieces(p->n, l->columns), 16),
	};

	for (;;) {
		bool can_halve_rows = g.rows >= 2 * l->rows_min,
			 can_halve_columns = g.columns >= 2 * l->columns_min;

		g.down = pieces(p->m, g.rows);
		g.across = pieces(p->n, g.columns);
		if (g.down * g.across >= TILES || (!can_halve_rows && !can_halve_columns))
			return g;
		if (can_halve_columns && (p->b_transposed || g.columns > 2 * g.rows || !can_halve_rows))
			g.columns = piece_length(g.columns, 2, 16);
		else
			g.rows = piece_length(g.rows, 2, 8);
	}
}

#ifdef HAVE_DNNL

const char *gemm_provider(void)
{
	return "dnnl";
}

static void gemm_tile(const struct gemm *p, const struct gemm_part *t)
{
	int lda = p->a_transposed ? p->m : p->k, ldb = p->b_transposed ? p->k : p->n;
	const float *a = p->a + (p->a_transposed ? (size_t)t->row : (size_t)t->row * lda);
	const float *b = p->b + (p->b_transposed ? (size_t)t->column * ldb : (size_t)t->column);

	dnnl_sgemm(p->a_transposed ? 'T' : 'N', p->b_transposed ? 'T' : 'N', t->rows, t->columns, p->k,
		1, a, lda, b, ldb, p->accumulate ? 1 : 0, p->c + (size_t)t->row * p->n + t->column, p->n);
}

#else

const char *gemm_provider(void)
{
	return "own";
}

/* Computes a tile with the kernels' own product, whose bits are the same with every instruction
 * set. */
static void gemm_tile(const struct gemm *p, const struct gemm_part *t)
{
	size_t a_row = p->a_transposed ? 1 : (size_t)p->k, a_col = p->a_transposed ? (size_t)p->m : 1;
	size_t b_row = p->b_transposed ? 1 : (size_t)p->n, b_col = p->b_transposed ? (size_t)p->k : 1;

	kernels_now()->gemm_block(&(struct block_gemm) { t->rows, t->columns, p->k,
		p->a + t->row * a_row, a_row, a_col, p->b + t->column * b_col, b_row, b_col,
		p->c + (size_t)t->row * p->n + t->column, (size_t)p->n, p->accumulate });
}

#endif

void gemm_run(const struct gemm *p, gemm_done *done, void *arg)
{
	struct grid g = grid_of(p);

#pragma omp parallel
	{
#ifdef _OPENMP
		/* for this thread only: oneDNN then sees one thread, even in a team of one, which OpenMP
		 * does not count as a parallel region */
		omp_set_num_threads(1);
#endif
#pragma omp for schedule(dynamic)
		for (int i = 0; i < g.down * g.across; i++) {
			int row = i / g.across * g.rows, column = i % g.across * g.columns;
			struct gemm_part part = {
				row,
				p->m - row < g.rows ? p->m - row : g.rows,
				column,
				p->n - column < g.columns ? p->n - column : g.columns,
			};

			gemm_tile(p, &part);
			if (done)
				done(arg, &part);
		}
	}
}
