/* SPDX-License-Identifier: Apache-2.0 */
/* Batch normalisation over all ranks: they exchange the number of rows and two numbers a column,
 * twice a microbatch. */
#include "trainer/model/batchnorm.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"

struct batchnorm {
	struct batchnorm_tensors tensors;
	int width;
	struct comm *comm; /* NULL: a single rank */
	int rank, size;
	const int *order;     /* [size] of the ranks; NULL: that of their numbers */
	const float *weights; /* in the device's memory, in the ops' compute type */
	double waited;

	/* ---- a rank's message: the number of its rows, and two numbers a column ---- */
	double *messages; /* [size] */
	comm_ticket ticket;

	/* ---- the batch ---- */
	double rows;        /* on all ranks */
	double *total;      /* [2, width] combined over the ranks */
	float *mean, *rstd; /* [width] */
	float *means;       /* [2, width] means of dy·n and dy over all rows */

	/* ---- copies in device memory; NULL where ops use the host's ---- */
	double *remote_sums; /* [2, width] of this rank's rows */
	float *remote_mean;  /* [4, width] mean, rstd, means */

	/* ---- the running statistics, with all batches since batchnorm_bind ---- */
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

static double *message_in_turn(const struct batchnorm *norm, int turn)
{
	return message_of(norm, norm->order ? norm->order[turn] : turn);
}

struct batchnorm *batchnorm_create(const struct batchnorm_tensors *tensors, int width,
	struct err *err)
{
	size_t columns = (size_t)width;
	struct batchnorm *norm = calloc(1, sizeof *norm);
	if (norm) {
		*norm = (struct batchnorm) { .tensors = *tensors, .width = width, .size = 1 };
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

size_t batchnorm_floats(const struct batchnorm *norm)
{
	return 8 * (size_t)norm->width;
}

void batchnorm_place(struct batchnorm *norm, float *floats)
{
	norm->remote_sums = (double *)(void *)floats;
	norm->remote_mean = floats ? floats + 4 * (size_t)norm->width : NULL;
}

int batchnorm_join(struct batchnorm *norm, struct comm *comm, const int *order, struct err *err)
{
	size_t size = (size_t)comm_size(comm);
	double *messages = calloc(size * message_size(norm), sizeof *messages);
	if (!messages)
		return err_set(err, "model: couldn't normalise the batches of %zu ranks: out of memory",
			size);
	free(norm->messages);
	norm->messages = messages;
	norm->comm = size > 1 ? comm : NULL;
	norm->rank = comm_rank(comm);
	norm->order = order;
	norm->size = (int)size;
	return 0;
}

/* ---- copies to and from device memory ---- */

static void take(struct ops *ops, void *host, const void *device, size_t bytes)
{
	if (device_has_memory(ops->device))
		ops->device->copy_out(ops->device, host, device, bytes);
	else
		memcpy(host, device, bytes);
}

static void give(struct ops *ops, void *device, const void *host, size_t bytes)
{
	if (device_has_memory(ops->device))
		ops->device->put(ops->device, device, host, bytes);
	else
		memcpy(device, host, bytes);
}

static const float *weight_at(const struct batchnorm *norm, const struct ops *ops, size_t offset)
{
	return (const float *)(const void *)((const char *)norm->weights + offset * ops->element);
}

/* Where ops write the sums of this rank's rows. */
static double *sums_of(struct batchnorm *norm)
{
	return norm->remote_sums ? norm->remote_sums : message_of(norm, norm->rank) + 1;
}

/* Copies the sums of this rank's rows into its message, where ops write them elsewhere. */
static void take_sums(struct batchnorm *norm, struct ops *ops)
{
	if (norm->remote_sums)
		take(ops, message_of(norm, norm->rank) + 1, norm->remote_sums,
			2 * (size_t)norm->width * sizeof(double));
}

/* Makes two combined rows (mean and rstd, or the means) readable for ops, and returns where they
 * can read them. */
static const float *given(struct batchnorm *norm, struct ops *ops, const float *rows)
{
	if (!norm->remote_mean)
		return rows;
	float *device = norm->remote_mean + (rows - norm->mean);
	give(ops, device, rows, 2 * (size_t)norm->width * sizeof *rows);
	return device;
}

/* ---- the running statistics ---- */

void batchnorm_bind(struct batchnorm *norm, struct ops *ops, const float *weights,
	const float *master)
{
	size_t bytes = (size_t)norm->width * sizeof(float);
	norm->weights = weights;
	take(ops, norm->running_mean, master + norm->tensors.running_mean, bytes);
	take(ops, norm->running_var, master + norm->tensors.running_var, bytes);
	take(ops, &norm->batches, master + norm->tensors.batches, sizeof norm->batches);
}

void batchnorm_settle(const struct batchnorm *norm, struct ops *ops, float *master)
{
	size_t bytes = (size_t)norm->width * sizeof(float);
	give(ops, master + norm->tensors.running_mean, norm->running_mean, bytes);
	give(ops, master + norm->tensors.running_var, norm->running_var, bytes);
	give(ops, master + norm->tensors.batches, &norm->batches, sizeof norm->batches);
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
	norm->ticket =
		comm_allgather(norm->comm, label, own, norm->messages, message_size(norm) * sizeof *own);
}

static void receive(struct batchnorm *norm)
{
	struct err kept; /* unused: the next wait on the communicator returns the error again */
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

/* Combines one more rank's moments with those before it (Chan, Golub and LeVeque, "Updating
 * formulae and a pairwise algorithm for computing sample variances", 1979). */
static void join_moments(struct batchnorm *norm, const double *message)
{
	double *mean = norm->total, *squares = norm->total + norm->width, before = norm->rows,
		   more = message[0];
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
	for (int turn = 0; turn < norm->size; turn++)
		join_moments(norm, message_in_turn(norm, turn));
	for (int c = 0; c < norm->width; c++) {
		double variance = norm->rows > 0 ? norm->total[norm->width + c] / norm->rows : 0;
		norm->mean[c] = (float)norm->total[c];
		norm->rstd[c] = (float)(1 / sqrt(variance + BATCHNORM_EPSILON));
	}
	update_running(norm);
}

/* Normalises by norm->mean and norm->rstd. */
static void normalise(struct batchnorm *norm, struct ops *ops, float *y, const float *x, int M)
{
	const float *mean = given(norm, ops, norm->mean);
	ops->batchnorm_relu(ops, y, x, mean, mean + norm->width,
		weight_at(norm, ops, norm->tensors.gamma), weight_at(norm, ops, norm->tensors.beta), M,
		norm->width);
}

void batchnorm_forward(struct batchnorm *norm, struct ops *ops, float *y, const float *x,
	const int32_t *targets, int rows, int M)
{
	message_of(norm, norm->rank)[0] = rows;
	ops->batchnorm_moments(ops, sums_of(norm), x, targets, M, norm->width);
	take_sums(norm, ops);
	send(norm, "batch statistics", ops->params->step);
	receive(norm);
	fold_moments(norm);
	normalise(norm, ops, y, x, M);
}

void batchnorm_evaluate(struct batchnorm *norm, struct ops *ops, float *y, const float *x, int M)
{
	for (int c = 0; c < norm->width; c++) {
		norm->mean[c] = norm->running_mean[c];
		norm->rstd[c] = (float)(1 / sqrt((double)norm->running_var[c] + BATCHNORM_EPSILON));
	}
	normalise(norm, ops, y, x, M);
}

void batchnorm_absent_forward(struct batchnorm *norm, struct ops *ops)
{
	memset(message_of(norm, norm->rank), 0, message_size(norm) * sizeof *norm->messages);
	send(norm, "batch statistics", ops->params->step);
	receive(norm);
	fold_moments(norm);
}

/* ---- backward ---- */

void batchnorm_backward_begin(struct batchnorm *norm, struct ops *ops, float *grads,
	const float *dy, const float *x, const int32_t *targets, int M, int accumulate)
{
	const float *mean = norm->remote_mean ? norm->remote_mean : norm->mean;
	ops->batchnorm_sums(ops, sums_of(norm), grads + norm->tensors.gamma, grads + norm->tensors.beta,
		dy, x, mean, mean + norm->width, targets, M, norm->width, accumulate);
	take_sums(norm, ops);
	send(norm, "batch gradients", ops->params->step);
}

static void fold_sums(struct batchnorm *norm)
{
	size_t count = 2 * (size_t)norm->width;
	memset(norm->total, 0, count * sizeof *norm->total);
	for (int turn = 0; turn < norm->size; turn++)
		for (size_t i = 0; i < count; i++)
			norm->total[i] += message_in_turn(norm, turn)[1 + i];
	for (size_t i = 0; i < count; i++)
		norm->means[i] = norm->rows > 0 ? (float)(norm->total[i] / norm->rows) : 0;
}

void batchnorm_backward_end(struct batchnorm *norm, struct ops *ops, float *dx, const float *dy,
	const float *x, const int32_t *targets, int M)
{
	const float *mean = norm->remote_mean ? norm->remote_mean : norm->mean;
	receive(norm);
	fold_sums(norm);
	ops->batchnorm_backward(ops, dx, dy, x, mean, mean + norm->width,
		weight_at(norm, ops, norm->tensors.gamma), given(norm, ops, norm->means), targets, M,
		norm->width);
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
