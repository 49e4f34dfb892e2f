/* SPDX-License-Identifier: Apache-2.0 */
/* Builds collectives from a provider's exchange, so that a provider needs nothing else. The
 * all-gather sends each rank's bytes straight to every other: as many bytes as a ring, in one step.
 * The all-reduce is the ring of Patarasuk and Yuan (JPDC 2009). The broadcast of a large buffer is
 * a scatter and an all-gather, so that the root sends the buffer about once. */
#include "trainer/comm/comm_op.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/bytes.h"

#define BROADCAST_DIRECT 65536 /* bytes that the root still sends whole to every rank */
#define SEGMENT_ALIGN 64

static struct comm_op *new_op(const char *operation, const char *label, int rank, int size,
	int transfers)
{
	struct comm_op *op = calloc(1, sizeof *op + (size_t)transfers * sizeof op->transfers[0]);

	if (!op)
		return NULL;
	op->operation = operation;
	snprintf(op->label, sizeof op->label, "%s", label);
	op->rank = rank;
	op->size = size;
	return op;
}

void comm_op_free(struct comm_op *op)
{
	if (op)
		free(op->scratch);
	free(op);
}

static void add_transfer(struct comm_op *op, int peer, void *buffer, size_t bytes, int receive)
{
	if (bytes > 0)
		op->transfers[op->count++] = (struct comm_transfer) { peer, buffer, bytes, receive };
}

static void add_transfers(struct comm_op *op, const struct comm_transfer *transfers, int count)
{
	for (int i = 0; i < count; i++)
		add_transfer(op, transfers[i].peer, transfers[i].buffer, transfers[i].bytes,
			transfers[i].receive);
}

int comm_op_check(const struct comm_op *op, struct err *err)
{
	for (int i = 0; i < op->count + op->sums.count; i++)
		if (op->transfers[i].peer < 0 || op->transfers[i].peer >= op->size
			|| op->transfers[i].peer == op->rank)
			return err_set(err, "rank %d can't exchange with rank %d of %d", op->rank,
				op->transfers[i].peer, op->size);
	return 0;
}

/* One exchange of a composed operation. */
static int exchange(struct comm_op *op, const struct comm_provider *provider, void *state,
	struct err *err)
{
	for (int i = 0; i < op->count; i++)
		op->sent += op->transfers[i].receive ? 0 : op->transfers[i].bytes;
	return op->count == 0
		? 0
		: provider->finish(state, provider->begin(state, op->transfers, op->count, NULL), err);
}

struct comm_op *comm_op_exchange(int rank, int size, const char *label,
	const struct comm_transfer *transfers, int count, comm_work *work, void *arg)
{
	struct comm_op *op = new_op(count ? "exchange" : "call", label, rank, size, count);

	if (!op)
		return NULL;
	add_transfers(op, transfers, count);
	op->work = work;
	op->arg = arg;
	return op;
}

struct comm_op *comm_op_reduce(int rank, int size, const char *label,
	const struct comm_reduction *reduction)
{
	struct comm_op *op =
		new_op("exchange", label, rank, size, reduction->piece_count + reduction->sum_count);

	if (!op)
		return NULL;
	add_transfers(op, reduction->pieces, reduction->piece_count);
	int count = op->count;
	add_transfers(op, reduction->sums, reduction->sum_count);
	op->sums =
		(struct comm_sums) { .transfers = op->transfers + count, .count = op->count - count };
	op->count = count;
	op->reduction = true;
	op->prepare = reduction->prepare;
	op->add = reduction->add;
	op->arg = reduction->arg;
	return op;
}

static int run_allgather(struct comm_op *op, const struct comm_provider *provider, void *state,
	struct err *err)
{
	char *all = op->buffer, *own = all + (size_t)op->rank * op->bytes;
	int rc = provider->allgather ? provider->allgather(state, op->source, all, op->bytes, err)
								 : COMM_OF_HOST;

	if (rc != COMM_OF_HOST)
		return rc;
	if (op->source != own)
		memmove(own, op->source, op->bytes);
	for (int step = 1; step < op->size; step++) {
		int to = (op->rank + step) % op->size, from = (op->rank - step + op->size) % op->size;

		add_transfer(op, from, all + (size_t)from * op->bytes, op->bytes, 1);
		add_transfer(op, to, own, op->bytes, 0);
	}
	return exchange(op, provider, state, err);
}

struct comm_op *comm_op_allgather(int rank, int size, const char *label, const void *mine,
	void *all, size_t bytes)
{
	struct comm_op *op = new_op("all-gather", label, rank, size, 2 * (size - 1));

	if (!op)
		return NULL;
	op->run = run_allgather;
	op->source = mine;
	op->buffer = all;
	op->bytes = bytes;
	return op;
}

/* The part of the buffer that `rank` sums or passes on. */
static char *segment(const struct comm_op *op, int rank, size_t *bytes)
{
	size_t each = (op->bytes / (size_t)op->size + SEGMENT_ALIGN) / SEGMENT_ALIGN * SEGMENT_ALIGN;
	size_t begin = each * (size_t)rank, end = begin + each;

	begin = begin < op->bytes ? begin : op->bytes;
	end = end < op->bytes ? end : op->bytes;
	*bytes = end - begin;
	return (char *)op->buffer + begin;
}

/* One step of the ring: sends one segment on and receives the one before it. */
static int pass_on(struct comm_op *op, int send, void *into, const struct comm_provider *provider,
	void *state, struct err *err)
{
	int receive = (send - 1 + op->size) % op->size;
	size_t sent, received;
	char *out = segment(op, send, &sent);

	segment(op, receive, &received);
	op->count = 0;
	add_transfer(op, (op->rank - 1 + op->size) % op->size, into, received, 1);
	add_transfer(op, (op->rank + 1) % op->size, out, sent, 0);
	return exchange(op, provider, state, err);
}

static int sum_on_device(struct comm_op *op, bool bf16, const struct comm_provider *provider,
	void *state, struct err *err)
{
	return provider->allreduce
		? provider->allreduce(state, op->buffer, op->bytes / sizeof(float), bf16, err)
		: COMM_OF_HOST;
}

static int run_allreduce(struct comm_op *op, const struct comm_provider *provider, void *state,
	struct err *err)
{
	int size = op->size, rank = op->rank, rc = sum_on_device(op, false, provider, state, err);
	size_t bytes;

	if (rc != COMM_OF_HOST)
		return rc;
	segment(op, 0, &bytes); /* segment 0 is the longest */
	float *theirs = op->scratch = malloc(bytes + 1);
	if (!theirs)
		return err_set(err, "out of memory");
	for (int step = 0; step < size - 1; step++) {
		int send = (rank - step + size) % size;

		if (pass_on(op, send, theirs, provider, state, err) < 0)
			return -1;
		float *sum = (float *)(void *)segment(op, (send - 1 + size) % size, &bytes);
		for (size_t i = 0; i < bytes / sizeof *sum; i++)
			sum[i] += theirs[i];
	}
	for (int step = 0; step < size - 1; step++) {
		int send = (rank + 1 - step + size) % size;
		char *into = segment(op, (send - 1 + size) % size, &bytes);

		if (pass_on(op, send, into, provider, state, err) < 0)
			return -1;
	}
	return 0;
}

struct comm_op *comm_op_allreduce(int rank, int size, const char *label, float *buffer,
	size_t count)
{
	struct comm_op *op = new_op("all-reduce", label, rank, size, 2);

	if (!op)
		return NULL;
	op->run = run_allreduce;
	op->buffer = buffer;
	op->bytes = count * sizeof *buffer;
	return op;
}

/* bytes_float_to_bf16 over many elements, in a form that compilers vectorise. */
static void cast_to_bf16(uint16_t *to, const float *from, size_t count)
{
#pragma omp simd
	for (size_t i = 0; i < count; i++) {
		uint32_t bits = bytes_of_float(from[i]), rounded = bits + 0x7fff + (bits >> 16 & 1);
		to[i] = (uint16_t)(((bits & 0x7fffffff) > 0x7f800000 ? bits | 0x400000 : rounded) >> 16);
	}
}

static void cast_to_fp32(float *to, const uint16_t *from, size_t count)
{
#pragma omp simd
	for (size_t i = 0; i < count; i++)
		to[i] = bytes_bf16_to_float(from[i]);
}

static void add_wide(float *to, const uint16_t *from, size_t count)
{
#pragma omp simd
	for (size_t i = 0; i < count; i++)
		to[i] += bytes_bf16_to_float(from[i]);
}

/* One step of the ring in bf16: casts the segment `send` into `out` and sends it; the one before it
 * comes into `in`. */
static int pass_bf16(struct comm_op *op, int send, uint16_t *out, uint16_t *in,
	const struct comm_provider *provider, void *state, struct err *err)
{
	size_t sent, received;
	const float *from = (const float *)(void *)segment(op, send, &sent);

	segment(op, (send - 1 + op->size) % op->size, &received);
	cast_to_bf16(out, from, sent / sizeof *from);
	op->count = 0;
	add_transfer(op, (op->rank - 1 + op->size) % op->size, in, received / 2, 1);
	add_transfer(op, (op->rank + 1) % op->size, out, sent / 2, 0);
	return exchange(op, provider, state, err);
}

static int run_allreduce_bf16(struct comm_op *op, const struct comm_provider *provider, void *state,
	struct err *err)
{
	int size = op->size, rank = op->rank, rc = sum_on_device(op, true, provider, state, err);
	size_t bytes, longest;

	if (rc != COMM_OF_HOST)
		return rc;
	segment(op, 0, &longest);
	uint16_t *out = op->scratch = malloc(longest + 1); /* of two bf16 segments */
	if (!out)
		return err_set(err, "out of memory");
	uint16_t *in = out + longest / sizeof(float);
	for (int step = 0; step < 2 * (size - 1); step++) {
		int send = (rank - step + 2 * size) % size;

		if (pass_bf16(op, send, out, in, provider, state, err) < 0)
			return -1;
		float *to = (float *)(void *)segment(op, send, &bytes);
		if (step == size - 1)
			cast_to_fp32(to, out,
				bytes / sizeof *to); /* this rank's own sum, rounded as on all other ranks */
		to = (float *)(void *)segment(op, (send - 1 + size) % size, &bytes);
		if (step >= size - 1)
			cast_to_fp32(to, in, bytes / sizeof *to);
		else
			add_wide(to, in, bytes / sizeof *to);
	}
	return 0;
}

struct comm_op *comm_op_allreduce_bf16(int rank, int size, const char *label, float *buffer,
	size_t count)
{
	struct comm_op *op = comm_op_allreduce(rank, size, label, buffer, count);

	if (op)
		op->run = run_allreduce_bf16;
	return op;
}

static int run_scatter(struct comm_op *op, const struct comm_provider *provider, void *state,
	struct err *err)
{
	size_t bytes;
	char *part;

	op->count = 0;
	if (op->rank != op->root) {
		part = segment(op, op->rank, &bytes);
		add_transfer(op, op->root, part, bytes, 1);
	}
	for (int to = 0; op->rank == op->root && to < op->size; to++) {
		part = segment(op, to, &bytes);
		if (to != op->root)
			add_transfer(op, to, part, bytes, 0);
	}
	return exchange(op, provider, state, err);
}

/* Every rank passes its part on to all that lack it: the root has everything. */
static int run_allgather_parts(struct comm_op *op, const struct comm_provider *provider,
	void *state, struct err *err)
{
	size_t bytes;
	char *part;

	op->count = 0;
	for (int step = 1; step < op->size; step++) {
		int to = (op->rank + step) % op->size, from = (op->rank - step + op->size) % op->size;

		part = segment(op, from, &bytes);
		if (op->rank != op->root)
			add_transfer(op, from, part, bytes, 1);
		part = segment(op, op->rank, &bytes);
		if (to != op->root)
			add_transfer(op, to, part, bytes, 0);
	}
	return exchange(op, provider, state, err);
}

static int run_broadcast(struct comm_op *op, const struct comm_provider *provider, void *state,
	struct err *err)
{
	if (op->root < 0 || op->root >= op->size)
		return err_set(err, "there is no root rank %d of %d", op->root, op->size);
	if (op->bytes > BROADCAST_DIRECT) {
		if (run_scatter(op, provider, state, err) < 0)
			return -1;
		return run_allgather_parts(op, provider, state, err);
	}
	if (op->rank != op->root)
		add_transfer(op, op->root, op->buffer, op->bytes, 1);
	for (int to = 0; op->rank == op->root && to < op->size; to++)
		if (to != op->root)
			add_transfer(op, to, op->buffer, op->bytes, 0);
	return exchange(op, provider, state, err);
}

struct comm_op *comm_op_broadcast(int rank, int size, const char *label, void *buffer, size_t bytes,
	int root)
{
	struct comm_op *op = new_op("broadcast", label, rank, size, 2 * (size - 1));

	if (!op)
		return NULL;
	op->run = run_broadcast;
	op->buffer = buffer;
	op->bytes = bytes;
	op->root = root;
	return op;
}

/* For an all-gather op->bytes is one rank's part; an exchange has only its transfers. */
size_t comm_op_bytes(const struct comm_op *op)
{
	size_t bytes = op->bytes;

	if (strcmp(op->operation, "all-gather") == 0)
		return bytes * (size_t)op->size;
	if (strcmp(op->operation, "exchange") == 0)
		for (int i = 0; i < op->count + op->sums.count; i++)
			bytes += op->transfers[i].bytes;
	return bytes;
}
