/* SPDX-License-Identifier: Apache-2.0 */
/* Builds collectives from a provider's exchange, so that a provider needs nothing else. The
 * all-gather sends each rank's bytes straight to every other: as many bytes as a ring, in one step.
 * Among many ranks that would be too many messages: there it is that of Bruck et al. (IEEE TPDS
 * 1997), with the same bytes in log2(size) messages. The all-reduce is the ring of Patarasuk and
 * Yuan (JPDC 2009). The broadcast of a large buffer is a scatter and an all-gather, so that the
 * root sends the buffer about once; that of a small one goes along a binomial tree where ranks are
 * many. */
#include <stdlib.h>
#include <string.h>

#include "common/bytes.h"
#include "trainer/comm/comm_private.h"

#define BROADCAST_DIRECT 65536 /* bytes that the root still sends whole to every rank */
#define SEGMENT_ALIGN 64

static void add_transfer(struct comm_op *op, int peer, void *buffer, size_t bytes, int receive)
{
	if (bytes > 0)
		op->transfers[op->count++] = (struct comm_transfer) { peer, buffer, bytes, receive };
}

/* One exchange of a composed operation. */
static int exchange(struct comm *comm, struct comm_op *op, struct err *err)
{
	for (int i = 0; i < op->count; i++)
		op->sent += op->transfers[i].receive ? 0 : op->transfers[i].bytes;
	return op->count == 0
		? 0
		: comm->provider->finish(comm->state,
			comm->provider->begin(comm->state, op->transfers, op->count, NULL), err);
}

/* Where consecutive ranks' parts of an all-gather lie; they follow each other. */
typedef char *parts_at(const struct comm *comm, const struct comm_op *op, int first, int count,
	size_t *bytes);

/* Adds transfers of `count` ranks' parts, from `first` on: in two runs where they go on at rank
 * 0. */
static void add_parts(const struct comm *comm, struct comm_op *op, parts_at *at, int peer,
	int first, int count, int receive)
{
	int straight = count < comm->size - first ? count : comm->size - first;
	size_t bytes;
	char *part = at(comm, op, first, straight, &bytes);

	add_transfer(op, peer, part, bytes, receive);
	if (straight == count)
		return;
	part = at(comm, op, 0, count - straight, &bytes);
	add_transfer(op, peer, part, bytes, receive);
}

/* In each step a rank doubles the parts that it has, by those of the ranks after its own. */
static int gather_doubling(struct comm *comm, struct comm_op *op, parts_at *at, struct err *err)
{
	int size = comm->size, rank = comm->rank;

	for (int have = 1, more; have < size; have += more) {
		int from = (rank + have) % size, to = (rank - have + size) % size;

		more = have < size - have ? have : size - have;
		op->count = 0;
		add_parts(comm, op, at, from, from, more, 1);
		add_parts(comm, op, at, to, rank, more, 0);
		if (exchange(comm, op, err) < 0)
			return -1;
	}
	return 0;
}

static char *equal_parts(const struct comm *comm, const struct comm_op *op, int first, int count,
	size_t *bytes)
{
	(void)comm;
	*bytes = (size_t)count * op->bytes;
	return (char *)op->buffer + (size_t)first * op->bytes;
}

static int run_allgather(struct comm *comm, struct comm_op *op, struct err *err)
{
	char *all = op->buffer, *own = all + (size_t)comm->rank * op->bytes;
	int rc = comm->provider->allgather
		? comm->provider->allgather(comm->state, op->source, all, op->bytes, err)
		: COMM_OF_HOST;

	if (rc != COMM_OF_HOST)
		return rc;
	if (op->source != own)
		memmove(own, op->source, op->bytes);
	if (comm->size > COMM_DIRECT)
		return gather_doubling(comm, op, equal_parts, err);
	for (int step = 1; step < comm->size; step++) {
		int to = (comm->rank + step) % comm->size,
			from = (comm->rank - step + comm->size) % comm->size;

		add_transfer(op, from, all + (size_t)from * op->bytes, op->bytes, 1);
		add_transfer(op, to, own, op->bytes, 0);
	}
	return exchange(comm, op, err);
}

comm_ticket comm_allgather(struct comm *comm, const char *label, const void *mine, void *all,
	size_t bytes)
{
	return comm_queue(comm, label, 2 * (comm->size - 1),
		&(struct comm_op) { .operation = "all-gather",
			.run = run_allgather,
			.source = mine,
			.buffer = all,
			.bytes = bytes });
}

/* The part of the buffer that `rank` sums or passes on. */
static char *segment(const struct comm *comm, const struct comm_op *op, int rank, size_t *bytes)
{
	size_t each = (op->bytes / (size_t)comm->size + SEGMENT_ALIGN) / SEGMENT_ALIGN * SEGMENT_ALIGN;
	size_t begin = each * (size_t)rank, end = begin + each;

	begin = begin < op->bytes ? begin : op->bytes;
	end = end < op->bytes ? end : op->bytes;
	*bytes = end - begin;
	return (char *)op->buffer + begin;
}

/* One step of the ring: sends one segment on and receives the one before it. */
static int pass_on(struct comm *comm, struct comm_op *op, int send, void *into, struct err *err)
{
	int receive = (send - 1 + comm->size) % comm->size;
	size_t sent, received;
	char *out = segment(comm, op, send, &sent);

	segment(comm, op, receive, &received);
	op->count = 0;
	add_transfer(op, (comm->rank - 1 + comm->size) % comm->size, into, received, 1);
	add_transfer(op, (comm->rank + 1) % comm->size, out, sent, 0);
	return exchange(comm, op, err);
}

static int sum_on_device(struct comm *comm, struct comm_op *op, bool bf16, struct err *err)
{
	return comm->provider->allreduce
		? comm->provider->allreduce(comm->state, op->buffer, op->bytes / sizeof(float), bf16, err)
		: COMM_OF_HOST;
}

static int run_allreduce(struct comm *comm, struct comm_op *op, struct err *err)
{
	int size = comm->size, rank = comm->rank, rc = sum_on_device(comm, op, false, err);
	size_t bytes;

	if (rc != COMM_OF_HOST)
		return rc;
	segment(comm, op, 0, &bytes); /* segment 0 is the longest */
	float *theirs = op->scratch = malloc(bytes + 1);
	if (!theirs)
		return err_set(err, "out of memory");
	for (int step = 0; step < size - 1; step++) {
		int send = (rank - step + size) % size;

		if (pass_on(comm, op, send, theirs, err) < 0)
			return -1;
		float *sum = (float *)(void *)segment(comm, op, (send - 1 + size) % size, &bytes);
		for (size_t i = 0; i < bytes / sizeof *sum; i++)
			sum[i] += theirs[i];
	}
	for (int step = 0; step < size - 1; step++) {
		int send = (rank + 1 - step + size) % size;
		char *into = segment(comm, op, (send - 1 + size) % size, &bytes);

		if (pass_on(comm, op, send, into, err) < 0)
			return -1;
	}
	return 0;
}

static comm_ticket queue_allreduce(struct comm *comm, const char *label, float *buffer,
	size_t count, int (*run)(struct comm *comm, struct comm_op *op, struct err *err))
{
	return comm_queue(comm, label, 2,
		&(struct comm_op) { .operation = "all-reduce",
			.run = run,
			.buffer = buffer,
			.bytes = count * sizeof *buffer });
}

comm_ticket comm_allreduce(struct comm *comm, const char *label, float *buffer, size_t count)
{
	return queue_allreduce(comm, label, buffer, count, run_allreduce);
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
static int pass_bf16(struct comm *comm, struct comm_op *op, int send, uint16_t *out, uint16_t *in,
	struct err *err)
{
	size_t sent, received;
	const float *from = (const float *)(void *)segment(comm, op, send, &sent);

	segment(comm, op, (send - 1 + comm->size) % comm->size, &received);
	cast_to_bf16(out, from, sent / sizeof *from);
	op->count = 0;
	add_transfer(op, (comm->rank - 1 + comm->size) % comm->size, in, received / 2, 1);
	add_transfer(op, (comm->rank + 1) % comm->size, out, sent / 2, 0);
	return exchange(comm, op, err);
}

static int run_allreduce_bf16(struct comm *comm, struct comm_op *op, struct err *err)
{
	int size = comm->size, rank = comm->rank, rc = sum_on_device(comm, op, true, err);
	size_t bytes, longest;

	if (rc != COMM_OF_HOST)
		return rc;
	segment(comm, op, 0, &longest);
	uint16_t *out = op->scratch = malloc(longest + 1); /* of two bf16 segments */
	if (!out)
		return err_set(err, "out of memory");
	uint16_t *in = out + longest / sizeof(float);
	for (int step = 0; step < 2 * (size - 1); step++) {
		int send = (rank - step + 2 * size) % size;

		if (pass_bf16(comm, op, send, out, in, err) < 0)
			return -1;
		float *to = (float *)(void *)segment(comm, op, send, &bytes);
		if (step == size - 1)
			cast_to_fp32(to, out,
				bytes / sizeof *to); /* this rank's own sum, rounded as on all other ranks */
		to = (float *)(void *)segment(comm, op, (send - 1 + size) % size, &bytes);
		if (step >= size - 1)
			cast_to_fp32(to, in, bytes / sizeof *to);
		else
			add_wide(to, in, bytes / sizeof *to);
	}
	return 0;
}

comm_ticket comm_allreduce_bf16(struct comm *comm, const char *label, float *buffer, size_t count)
{
	return queue_allreduce(comm, label, buffer, count, run_allreduce_bf16);
}

static int run_scatter(struct comm *comm, struct comm_op *op, struct err *err)
{
	size_t bytes;
	char *part;

	op->count = 0;
	if (comm->rank != op->root) {
		part = segment(comm, op, comm->rank, &bytes);
		add_transfer(op, op->root, part, bytes, 1);
	}
	for (int to = 0; comm->rank == op->root && to < comm->size; to++) {
		part = segment(comm, op, to, &bytes);
		if (to != op->root)
			add_transfer(op, to, part, bytes, 0);
	}
	return exchange(comm, op, err);
}

static char *segments(const struct comm *comm, const struct comm_op *op, int first, int count,
	size_t *bytes)
{
	size_t of_last;
	char *begin = segment(comm, op, first, bytes),
		 *last = segment(comm, op, first + count - 1, &of_last);

	*bytes = (size_t)(last - begin) + of_last;
	return begin;
}

/* Every rank passes its part on to all that lack it: the root has everything. */
static int run_allgather_parts(struct comm *comm, struct comm_op *op, struct err *err)
{
	size_t bytes;
	char *part;

	if (comm->size > COMM_DIRECT)
		return gather_doubling(comm, op, segments, err);
	op->count = 0;
	for (int step = 1; step < comm->size; step++) {
		int to = (comm->rank + step) % comm->size,
			from = (comm->rank - step + comm->size) % comm->size;

		part = segment(comm, op, from, &bytes);
		if (comm->rank != op->root)
			add_transfer(op, from, part, bytes, 1);
		part = segment(comm, op, comm->rank, &bytes);
		if (to != op->root)
			add_transfer(op, to, part, bytes, 0);
	}
	return exchange(comm, op, err);
}

/* Numbered from the root on, a rank hears from the one without its lowest bit, and tells those with
 * one lower bit more. */
static int broadcast_tree(struct comm *comm, struct comm_op *op, struct err *err)
{
	int size = comm->size, number = (comm->rank - op->root + size) % size, bit = number & -number;

	if (number > 0) {
		add_transfer(op, (op->root + number - bit) % size, op->buffer, op->bytes, 1);
		if (exchange(comm, op, err) < 0)
			return -1;
	}
	op->count = 0;
	for (bit = number > 0 ? bit / 2 : 1 << 30; bit > 0; bit /= 2)
		if (bit < size - number)
			add_transfer(op, (op->root + number + bit) % size, op->buffer, op->bytes, 0);
	return exchange(comm, op, err);
}

static int run_broadcast(struct comm *comm, struct comm_op *op, struct err *err)
{
	if (op->root < 0 || op->root >= comm->size)
		return err_set(err, "there is no root rank %d of %d", op->root, comm->size);
	if (op->bytes > BROADCAST_DIRECT) {
		if (run_scatter(comm, op, err) < 0)
			return -1;
		return run_allgather_parts(comm, op, err);
	}
	if (comm->size > COMM_DIRECT)
		return broadcast_tree(comm, op, err);
	if (comm->rank != op->root)
		add_transfer(op, op->root, op->buffer, op->bytes, 1);
	for (int to = 0; comm->rank == op->root && to < comm->size; to++)
		if (to != op->root)
			add_transfer(op, to, op->buffer, op->bytes, 0);
	return exchange(comm, op, err);
}

comm_ticket comm_broadcast(struct comm *comm, const char *label, void *buffer, size_t bytes,
	int root)
{
	return comm_queue(comm, label, 2 * (comm->size - 1),
		&(struct comm_op) { .operation = "broadcast",
			.run = run_broadcast,
			.buffer = buffer,
			.bytes = bytes,
			.root = root });
}
