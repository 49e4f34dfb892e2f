/* SPDX-License-Identifier: Apache-2.0 */
/* One queued operation of a communicator: a call, an exchange or a reduction, which comm_run.c
 * runs; or an all-gather, an all-reduce or a broadcast, composed here of a provider's exchanges. */
#ifndef MUSTER_COMM_OP_H
#define MUSTER_COMM_OP_H

#include <stdbool.h>

#include "trainer/comm/comm.h"
#include "trainer/comm/comm_provider.h"

struct device;

/* How far an operation has come. */
enum comm_op_state { COMM_OP_QUEUED, COMM_OP_BEGUN, COMM_OP_SUMMED };

struct comm_op {
	struct comm_op *next;
	comm_ticket ticket;
	const char *operation;
	char label[64];
	enum comm_op_state state;
	/* A composed operation's; NULL: its transfers are one exchange. */
	int (*run)(struct comm_op *op, const struct comm_provider *provider, void *state,
		struct err *err);
	comm_work *work;
	struct device *device; /* whose memory may hold the buffers; NULL: none */
	uint64_t event;        /* after what was queued on the device before this operation */
	bool reduction;        /* may begin before the operations ahead of it have ended */
	comm_prepare *prepare; /* NULL: nothing to do */
	comm_add *add;         /* NULL: nothing is summed */
	void *arg;             /* for work, prepare and add */
	struct comm_sums sums;
	void *exchange; /* the provider's, from its begin to its finish; NULL: none */
	int rank, size, root;
	const void *source;
	void *buffer;
	void *scratch; /* owned; the provider may use a part of it until it has left */
	size_t bytes;
	uint64_t sent; /* bytes since the last traced part; a sum counts as sent once it is made */
	uint64_t step; /* that it belongs to */
	int bucket;    /* that it belongs to; -1: none */
	double queued; /* clock_now() when operations are traced, else 0 */
	int count;
	struct comm_transfer
		transfers[]; /* copied, or composed as it runs; those of the sums come last */
};

/* Free each with comm_op_free; one that failed, only after the provider has left. NULL when out of
 * memory. The arguments are those of comm.h. */
struct comm_op *comm_op_exchange(int rank, int size, const char *label,
	const struct comm_transfer *transfers, int count, comm_work *work, void *arg);
struct comm_op *comm_op_reduce(int rank, int size, const char *label,
	const struct comm_reduction *reduction);
struct comm_op *comm_op_allgather(int rank, int size, const char *label, const void *mine,
	void *all, size_t bytes);
struct comm_op *comm_op_allreduce(int rank, int size, const char *label, float *buffer,
	size_t count);
struct comm_op *comm_op_allreduce_bf16(int rank, int size, const char *label, float *buffer,
	size_t count);
struct comm_op *comm_op_broadcast(int rank, int size, const char *label, void *buffer, size_t bytes,
	int root);

void comm_op_free(struct comm_op *op);

/* Bytes of all its buffers on this rank. */
size_t comm_op_bytes(const struct comm_op *op);
/* -1 where a transfer's peer does not exist or is this rank. */
int comm_op_check(const struct comm_op *op, struct err *err);

#endif
