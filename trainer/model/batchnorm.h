/* SPDX-License-Identifier: Apache-2.0 */
/* Batch normalisation and ReLU (Ioffe and Szegedy, arXiv 1502.03167) over the microbatches that all
 * ranks compute at the same time, as if they were one batch. Running statistics are those of
 * PyTorch's BatchNorm1d and SyncBatchNorm.
 *
 * Microbatch i of each rank's j-th slot form one batch, so every rank must make the same calls in
 * the same order. Each batch has two small all-gathers on the communicator, one in the forward pass
 * and one in the backward pass. Every rank combines what all have sent in rank order, in fp64, and
 * so has the same bits. The communicator keeps its failure: what is computed afterwards is
 * worthless, and the next wait on the communicator returns the error.
 *
 * What the ranks exchange lies in host memory. With ops on device memory, x, y, targets and
 * gradients lie there, and the host waits twice a microbatch for two numbers a column. */
#ifndef MUSTER_BATCHNORM_H
#define MUSTER_BATCHNORM_H

#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "trainer/comm/comm.h"
#include "trainer/ops/ops.h"

#define BATCHNORM_EPSILON 1e-5
#define BATCHNORM_MOMENTUM 0.1 /* weight of the newest batch in the running statistics */

/* Offsets of the tensors in every arena: parameters gamma and beta, the statistics, and the number
 * of batches, an int64. */
struct batchnorm_tensors {
	size_t gamma, beta, running_mean, running_var, batches;
};

struct batchnorm;

/* For `width` columns, over this rank alone until batchnorm_join. NULL on error. */
struct batchnorm *batchnorm_create(const struct batchnorm_tensors *tensors, int width,
	struct err *err);
/* `norm` may be NULL. */
void batchnorm_destroy(struct batchnorm *norm);

/* From now on normalises over all ranks of `comm`, which must outlive this. `order`: [world] in
 * which their statistics are combined, borrowed; NULL: that of their numbers. */
int batchnorm_join(struct batchnorm *norm, struct comm *comm, const int *order, struct err *err);

/* The number of floats that it needs in device memory, and where they are, 256-byte aligned. Only
 * for ops whose memory isn't the host's. */
size_t batchnorm_floats(const struct batchnorm *norm);
void batchnorm_place(struct batchnorm *norm, float *floats);

/* Binds `weights`, which have the compute type of `ops`, and reads the statistics from the master
 * weights, which are fp32 and in the same memory. Batches counted before are forgotten. */
void batchnorm_bind(struct batchnorm *norm, struct ops *ops, const float *weights,
	const float *master);
/* Writes the statistics, with all batches since batchnorm_bind, into the master weights. */
void batchnorm_settle(const struct batchnorm *norm, struct ops *ops, float *master);

/* y[M,C] of x[M,C], normalised by the running statistics; no communication. */
void batchnorm_evaluate(struct batchnorm *norm, struct ops *ops, float *y, const float *x, int M);

/* y[M,C] of x[M,C], normalised by the batch's statistics, which also enter the running ones: the
 * mean, and the variance with n - 1 for n rows. Rows with a negative target do not count; the other
 * `rows` do. A batch of one row has no variance, and leaves the running statistics alone. */
void batchnorm_forward(struct batchnorm *norm, struct ops *ops, float *y, const float *x,
	const int32_t *targets, int rows, int M);

/* The backward pass of that batch. begin writes the gradients of gamma and beta over this rank's
 * rows into the arena `grads`, and starts to send what all ranks must know; end writes dx and may
 * overwrite dy. x and targets are those of the forward pass. */
void batchnorm_backward_begin(struct batchnorm *norm, struct ops *ops, float *grads,
	const float *dy, const float *x, const int32_t *targets, int M, int accumulate);
void batchnorm_backward_end(struct batchnorm *norm, struct ops *ops, float *dx, const float *dy,
	const float *x, const int32_t *targets, int M);

/* Call these in place of forward, begin and end on a rank that has no microbatch, so that the
 * others do not wait. */
void batchnorm_absent_forward(struct batchnorm *norm, struct ops *ops);
void batchnorm_absent_begin(struct batchnorm *norm, struct ops *ops);
void batchnorm_absent_end(struct batchnorm *norm);

/* Seconds spent waiting for other ranks since the last call. */
double batchnorm_waited(struct batchnorm *norm);

#endif
