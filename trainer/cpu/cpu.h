/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the CPU's ops share: their state and the functions that fill the table. */
#ifndef MUSTER_CPU_H
#define MUSTER_CPU_H

#include "trainer/ops/ops.h"

/* Behind ops->state. */
struct cpu {
	struct step_params params;
	struct ops_shapes shapes;
	float *logits; /* plain: one row [V]; fast: HEAD_ROWS of them */
	float *norms;  /* fast: sums of dgamma and dbeta of every block of LAYERNORM_ROWS rows,
					  [blocks][2][C] */
	const struct kernels *kernels; /* fast */
};

#define LAYERNORM_EPSILON 1e-5f
#define NORM_LANES 64          /* of the tree of square_sums */
#define ATTENTION_BLOCK 64     /* queries or keys of a block of scores */
#define ATTENTION_SIZE_MAX 256 /* of a head: wider ones are computed plainly */
#define LAYERNORM_ROWS 32      /* of a block whose sums are kept apart */
#define HEAD_ROWS 512          /* of logits that exist at once */
#define COLUMNS 64             /* of a matrix for one thread, where columns are summed */
#define ELEMENTS 16384         /* of a vector for one thread */

struct kernels;

static inline struct cpu *cpu_of(struct ops *ops)
{
	return ops->state;
}

/* Zeroed, 64-byte aligned, released with free(); NULL when out of memory. */
void *cpu_alloc(size_t bytes);

/* Each fills its entries of the table with simple loops: the oracle that every other implementation
 * is held against. */
void plain_linear_install(struct ops *ops);
void plain_norm_install(struct ops *ops);
void plain_batchnorm_install(struct ops *ops);
void plain_attention_install(struct ops *ops);
void plain_loss_install(struct ops *ops);
void plain_update_install(struct ops *ops);

/* The same over vector kernels and threads. */
void fast_linear_install(struct ops *ops);
void fast_norm_install(struct ops *ops);
void fast_batchnorm_install(struct ops *ops);
void fast_attention_install(struct ops *ops);
void fast_loss_install(struct ops *ops);
void fast_update_install(struct ops *ops);

#endif
