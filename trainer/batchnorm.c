/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks tell each other of a batch: how many rows, and two numbers a column. */
#include "trainer/batchnorm.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"

struct batchnorm {
	struct batchnorm_tensors tensors;
	int width;
	struct comm *comm;          /* NULL: alone */
	int rank, size;
	const float *weights;
	double waited;

	/* a rank's message: the number of rows, two numbers a column */
	double *messages;           /* [size] of them */
	comm_ticket ticket;

	/* the batch */
	double rows;                /* of all ranks */
	double *total;              /* [2, width] folded over the ranks */
	float *mean, *rstd;         /* [width] */
	float *means;               /* [2, width] of dy·n and dy over all rows */

	/* the statistics with all batches since batchnorm_bind */
	float *running_mean, *running_var;
	int64_t batches;
};

static size_t message_size(const struct batchnorm *norm)
{
	return 1 + 2 * (size_t)norm->width;
}

static double *message_of(const struct batchnorm *norm, int rank)
{
	return norm->messages + (size_t)rank * message_size(norm);
}

struct batchnorm *batchnorm_create(const struct batchnorm_tensors *tensors, int width, struct err *err)
{
	size_t columns = (size_t)width;
	struct batchnorm *norm = calloc(1, sizeof *norm);
	if (norm) {
		*norm = (struct batchnorm){ .tensors = *tensors, .width = width, .size = 1 };
		norm->messages = calloc(message_size(norm), sizeof *norm->messages);
		norm->total = calloc(2 * columns, sizeof *norm->total);
		norm->mean = calloc(6 * columns, sizeof *norm->mean);
	}
	if (!norm || !norm->messages || !norm->total || !norm->mean) {
		batchnorm_destroy(norm);
		err_set(err, "model: couldn't normalise batches of %d columns: out of memory", width);
		return NULL;
	}
	norm->rstd = norm->mean + columns;
	norm->means = norm->rstd + columns;
	norm->running_mean = norm->means + 2 * columns;
	norm->running_var = norm->running_mean + columns;
	return norm;
}

void batchnorm_destroy(struct batchnorm *norm)
{
	if (!norm)
		return;
	free(norm->messages);
	free(norm->total);
	free(norm->mean);
	free(norm);
}

int batchnorm_join(struct batchnorm *norm, struct comm *comm, struct err *err)
{
	size_t size = (size_t)comm_size(comm);
	double *messages = calloc(size * message_size(norm), sizeof *messages);
	if (!messages)
		return err_set(err, "model: couldn't normalise the batches of %zu ranks: out of memory", size);
	free(norm->messages);
	norm->messages = messages;
	norm->comm = size > 1 ? comm : NULL;
	norm->rank = comm_rank(comm);
	norm->size = (int)size;
	return 0;
}

/* ---- the running statistics ---- */

void batchnorm_bind(struct batchnorm *norm, const float *weights)
{
	size_t bytes = (size_t)norm->width * sizeof(float);
	norm->weights = weights;
	memcpy(norm->running_mean, weights + norm->tensors.running_mean, bytes);
	memcpy(norm->running_var, weights + norm->tensors.running_var, bytes);
	memcpy(&norm->batches, weights + norm->tensors.batches, sizeof norm->batches);
}

void batchnorm_settle(const struct batchnorm *norm, float *weights)
{
	size_t bytes = (size_t)norm->width * sizeof(float);
	memcpy(weights + norm->tensors.running_mean, norm->running_mean, bytes);
	memcpy(weights + norm->tensors.running_var, norm->running_var, bytes);
	memcpy(weights + norm->tensors.batches, &norm->batches, sizeof norm->batches);
}

static float moved(float running, double newest)
{
	return (float)((1 - BATCHNORM_MOMENTUM) * (double)running + BATCHNORM_MOMENTUM * newest);
}

static void update_running(struct batchnorm *norm)
{
	const double *mean = norm->total, *squares = norm->total + norm->width;
	if (norm->rows < 2)
		return;
	for (int c = 0; c < norm->width; c++) {
		norm->running_mean[c] = moved(norm->running_mean[c], mean[c]);
		norm->running_var[c] = moved(norm->running_var[c], squares[c] / (norm->rows - 1));
	}
	norm->batches++;
}

/* ---- between the ranks ---- */

static void send(struct batchnorm *norm, const char *what, uint64_t step)
{
	char label[64];
	double *own = message_of(norm, norm->rank);
	if (!norm->comm)
		return;
	snprintf(label, sizeof label, "%s of step %" PRIu64, what, step);
	norm->ticket = comm_allgather(norm->comm, label, own, norm->messages, message_size(norm) * sizeof *own);
}

static void receive(struct batchnorm *norm)
{
	struct err kept; /* the communicator gives it to whoever waits next, too */
	double began = clock_now();
	if (!norm->comm)
		return;
	comm_wait(norm->comm, norm->ticket, &kept);
	norm->waited += clock_now() - began;
}

double batchnorm_waited(struct batchnorm *norm)
{
	double waited = norm->waited;
	norm->waited = 0;
	return waited;
}

/* ---- forward ---- */

/* Joins the moments of one more rank to those before (Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for
 * computing sample variances", 1979). */
static void join_moments(struct batchnorm *norm, const double *message)
{
	double *mean = norm->total, *squares = norm->total + norm->width, before = norm->rows, more = message[0];
	const double *their_mean = message + 1, *their_squares = their_mean + norm->width;
	if (more == 0)
		return;
	norm->rows = before + more;
	for (int c = 0; c < norm->width; c++) {
		double distance = their_mean[c] - mean[c];
		mean[c] += distance * (more / norm->rows);
		squares[c] += their_squares[c] + distance * distance * (before * more / norm->rows);
	}
}

static void fold_moments(struct batchnorm *norm)
{
	norm->rows = 0;
	memset(norm->total, 0, 2 * (size_t)norm->width * sizeof *norm->total);
	for (int rank = 0; rank < norm->size; rank++)
		join_moments(norm, message_of(norm, rank));
	for (int c = 0; c < norm->width; c++) {
		double variance = norm->rows > 0 ? norm->total[norm->width + c] / norm->rows : 0;
		norm->mean[c] = (float)norm->total[c];
		norm->rstd[c] = (float)(1 / sqrt(variance + BATCHNORM_EPSILON));
	}
	update_running(norm);
}

static double rows_of(const int32_t *targets, int M)
{
	int rows = 0;
	for (int m = 0; m < M; m++)
		rows += targets[m] >= 0;
	return rows;
}

void batchnorm_forward(struct batchnorm *norm, struct ops *ops, float *y, const float *x, const int32_t *targets, int M)
{
	const float *w = norm->weights;
	double *own = message_of(norm, norm->rank);
	own[0] = rows_of(targets, M);
	ops->batchnorm_moments(ops, own + 1, x, targets, M, norm->width);
	send(norm, "batch statistics", ops->params->step);
	receive(norm);
	fold_moments(norm);
	ops->batchnorm_relu(ops, y, x, norm->mean, norm->rstd, w + norm->tensors.gamma, w + norm->tensors.beta, M, norm->width);
}

void batchnorm_evaluate(struct batchnorm *norm, struct ops *ops, float *y, const float *x, int M)
{
	const float *w = norm->weights;
	for (int c = 0; c < norm->width; c++) {
		norm->mean[c] = norm->running_mean[c];
		norm->rstd[c] = (float)(1 / sqrt((double)norm->running_var[c] + BATCHNORM_EPSILON));
	}
	ops->batchnorm_relu(ops, y, x, norm->mean, norm->rstd, w + norm->tensors.gamma, w + norm->tensors.beta, M, norm->width);
}

void batchnorm_absent_forward(struct batchnorm *norm, struct ops *ops)
{
	memset(message_of(norm, norm->rank), 0, message_size(norm) * sizeof *norm->messages);
	send(norm, "batch statistics", ops->params->step);
	receive(norm);
	fold_moments(norm);
}

/* ---- backward ---- */

void batchnorm_backward_begin(struct batchnorm *norm, struct ops *ops, float *grads, const float *dy, const float *x,
	const int32_t *targets, int M, int accumulate)
{
	double *own = message_of(norm, norm->rank);
	own[0] = rows_of(targets, M);
	ops->batchnorm_sums(ops, own + 1, grads + norm->tensors.gamma, grads + norm->tensors.beta, dy, x, norm->mean, norm->rstd,
		targets, M, norm->width, accumulate);
	send(norm, "batch gradients", ops->params->step);
}

static void fold_sums(struct batchnorm *norm)
{
	size_t count = 2 * (size_t)norm->width;
	memset(norm->total, 0, count * sizeof *norm->total);
	for (int rank = 0; rank < norm->size; rank++)
		for (size_t i = 0; i < count; i++)
			norm->total[i] += message_of(norm, rank)[1 + i];
	for (size_t i = 0; i < count; i++)
		norm->means[i] = norm->rows > 0 ? (float)(norm->total[i] / norm->rows) : 0;
}

void batchnorm_backward_end(struct batchnorm *norm, struct ops *ops, float *dx, const float *dy, const float *x,
	const int32_t *targets, int M)
{
	receive(norm);
	fold_sums(norm);
	ops->batchnorm_backward(ops, dx, dy, x, norm->mean, norm->rstd, norm->weights + norm->tensors.gamma, norm->means, targets,
		M, norm->width);
}

void batchnorm_absent_begin(struct batchnorm *norm, struct ops *ops)
{
	memset(message_of(norm, norm->rank), 0, message_size(norm) * sizeof *norm->messages);
	send(norm, "batch gradients", ops->params->step);
}

void batchnorm_absent_end(struct batchnorm *norm)
{
	receive(norm);
}
