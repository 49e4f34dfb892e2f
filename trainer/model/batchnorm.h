/* SPDX-License-Identifier: Apache-2.0 */
/* Batch normalisation and ReLU (Ioffe and Szegedy, arXiv 1502.03167) over the microbatches that all
 * ranks have in hand at the same time, as if they were one; running statistics as PyTorch's
 * BatchNorm1d and SyncBatchNorm keep them.
 *
 * Microbatch i of each rank's j-th slot are one batch, so every rank must make the same calls in
 * the same order. In it two small all-gathers travel on the communicator, one in the forward pass
 * and one in the backward pass; every rank folds what all have sent in the order of the ranks, in
 * fp64, and has the same bits. A failure of the communicator is kept there: what is computed then
 * is worth nothing, and whoever waits next on the communicator has the error.
 *
 * What ranks tell each other is in the host's memory. Where ops have another, x, y, targets and
 * gradients are there, and the host waits twice a microbatch for two numbers a column from there.
 */
#ifndef MUSTER_BATCHNORM_H
#define MUSTER_BATCHNORM_H

#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "trainer/comm/comm.h"
#include "trainer/ops/ops.h"

#define BATCHNORM_EPSILON 1e-5
#define BATCHNORM_MOMENTUM 0.1 /* share of the newest batch in the running statistics */

/* Offsets of its tensors in every arena: parameters gamma and beta, statistics, and the number of
 * batches, an int64. */
struct batchnorm_tensors {
	size_t gamma, beta, running_mean, running_var, batches;
};

struct batchnorm;

/* For `width` columns, alone at first. */
struct batchnorm *batchnorm_create(const struct batchnorm_tensors *tensors, int width,
	struct err *err);
/* NULL is allowed. */
void batchnorm_destroy(struct batchnorm *norm);

/* From now on all ranks of `comm`, which must outlive this, are normalised together. */
int batchnorm_join(struct batchnorm *norm, struct comm *comm, struct err *err);

/* Floats in the memory of ops that aren't the host's, 256-byte aligned, and where they are; NULL:
 * nowhere yet. */
size_t batchnorm_floats(const struct batchnorm *norm);
void batchnorm_place(struct batchnorm *norm, float *floats);

/* Takes the weights, of the compute type of `ops`, and the statistics of the master weights, fp32
 * and in the same memory; batches since then are forgotten. */
void batchnorm_bind(struct batchnorm *norm, struct ops *ops, const float *weights,
	const float *master);
/* Writes the statistics, with all batches since they were taken, into the master weights. */
void batchnorm_settle(const struct batchnorm *norm, struct ops *ops, float *master);

/* y[M,C] of x[M,C] by the running statistics; no communication. */
void batchnorm_evaluate(struct batchnorm *norm, struct ops *ops, float *y, const float *x, int M);

/* y[M,C] of x[M,C] by those of the batch, which go into the running ones: mean, and variance with n
 * - 1 for n rows. Rows with a negative target do not count, the other `rows` do; a batch of one row
 * has no variance and leaves the running statistics alone. */
void batchnorm_forward(struct batchnorm *norm, struct ops *ops, float *y, const float *x,
	const int32_t *targets, int rows, int M);

/* The backward pass of that batch. begin: the gradients of gamma and beta, of this rank's rows,
 * into the arena `grads`, and what all must know is under way; end: dx, in which dy may be
 * overwritten. x and targets are those of the forward pass. */
void batchnorm_backward_begin(struct batchnorm *norm, struct ops *ops, float *grads,
	const float *dy, const float *x, const int32_t *targets, int M, int accumulate);
void batchnorm_backward_end(struct batchnorm *norm, struct ops *ops, float *dx, const float *dy,
	const float *x, const int32_t *targets, int M);

/* In the place of forward, begin and end on a rank that has nothing to give: the others must not
 * wait. */
void batchnorm_absent_forward(struct batchnorm *norm, struct ops *ops);
void batchnorm_absent_begin(struct batchnorm *norm, struct ops *ops);
void batchnorm_absent_end(struct batchnorm *norm);

/* Seconds spent waiting for other ranks since the last call. */
double batchnorm_waited(struct batchnorm *norm);

#endif
