/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the CPU's ops: their state, the sizes of their blocks, and the functions
 * that fill the table. */
#ifndef MUSTER_CPU_H
#define MUSTER_CPU_H

#include "trainer/ops/ops.h"

/* The struct in ops->state. */
struct cpu {
	struct device device;
	struct step_params params;
	struct ops_shapes shapes;
	float *logits; /* plain: one row [V]; fast: HEAD_ROWS rows */
	float *norms;  /* fast: sums of dgamma and dbeta of each block of LAYERNORM_ROWS rows,
					  [blocks][2][C] */
	const struct kernels *kernels; /* fast only */
};

#define LAYERNORM_EPSILON 1e-5f
#define NORM_LANES 64          /* lanes in the tree of square_sums */
#define ATTENTION_BLOCK 64     /* queries or keys in a block of scores */
#define ATTENTION_SIZE_MAX 256 /* widest head of the fast kernels; wider ones use plain C */
#define LAYERNORM_ROWS 32      /* rows in a block with its own sums */
#define HEAD_ROWS 512          /* rows of logits that exist at once */
#define COLUMNS 64             /* columns that one thread sums */
#define ELEMENTS 16384         /* elements of a vector for one thread */

struct kernels;

static inline struct cpu *cpu_of(struct ops *ops)
{
	return ops->state;
}

/* Each fills in its entries of the table with simple loops. They are the reference for all other
 * implementations. */
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
