/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fakes/no_network.h"

#include <stdlib.h>
#include <string.h>

struct sent_count sent_count;

static int me; /* the rank of this process */

static void count(const struct comm_transfer *transfers, int transfer_count)
{
	for (int i = 0; i < transfer_count && sent_count.node_of; i++) {
		bool inside = sent_count.node_of[transfers[i].peer] == sent_count.node_of[me];
		struct sent *sent = inside ? &sent_count.inside : &sent_count.outside;

		if (transfers[i].receive)
			continue;
		sent->messages++;
		sent->bytes += transfers[i].bytes;
	}
}

/* ---- over TCP ---- */

static void *open_tcp(const struct ident *ident, struct rdzv *rdzv,
	const struct comm_events *events, struct err *err)
{
	me = ident->rank;
	return comm_tcp.open(ident, rdzv, events, err);
}

static void *begin_tcp(void *state, const struct comm_transfer *transfers, int transfer_count,
	const struct comm_sums *sums)
{
	count(transfers, transfer_count);
	if (sums)
		count(sums->transfers, sums->count);
	return comm_tcp.begin(state, transfers, transfer_count, sums);
}

static int next_run_tcp(void *state, void *exchange, size_t made, size_t *bytes, struct err *err)
{
	return comm_tcp.next_run(state, exchange, made, bytes, err);
}

static int finish_tcp(void *state, void *exchange, struct err *err)
{
	return comm_tcp.finish(state, exchange, err);
}

static void interrupt_tcp(void *state)
{
	comm_tcp.interrupt(state);
}

static int check_tcp(void *state, struct err *err)
{
	return comm_tcp.check(state, err);
}

static void leave_tcp(void *state, const char *why, const unsigned char flight[FLIGHT_SIZE])
{
	comm_tcp.leave(state, why, flight);
}

static bool said_tcp(void *state, int rank, unsigned char flight[FLIGHT_SIZE], double *now)
{
	return comm_tcp.said(state, rank, flight, now);
}

static void close_tcp(void *state)
{
	comm_tcp.close(state);
}

static const char *peer_tcp(void *state, int rank)
{
	return comm_tcp.peer(state, rank);
}

const struct comm_provider counting_network = {
	.name = "tcp",
	.open = open_tcp,
	.begin = begin_tcp,
	.next_run = next_run_tcp,
	.finish = finish_tcp,
	.interrupt = interrupt_tcp,
	.check = check_tcp,
	.leave = leave_tcp,
	.said = said_tcp,
	.close = close_tcp,
	.peer = peer_tcp,
};

/* ---- without a network ---- */

static void *open_none(const struct ident *ident, struct rdzv *rdzv,
	const struct comm_events *events, struct err *err)
{
	(void)rdzv, (void)events, (void)err;
	me = ident->rank;
	return &me;
}

#define WORDS \
	((size_t)1 << 20) /* bytes; gradients and weights are longer, and nobody reads them \
					   */

/* All ranks' parts of an all-gather are alike, so whole numbers of them are, too. */
static void receive(const struct comm_transfer *transfers, int transfer_count)
{
	const struct comm_transfer *sent = NULL;

	for (int i = 0; i < transfer_count && !sent; i++)
		sent = transfers[i].receive ? NULL : &transfers[i];
	for (int i = 0; i < transfer_count && sent; i++)
		for (size_t at = 0;
			 transfers[i].receive && transfers[i].bytes <= WORDS && at < transfers[i].bytes;
			 at += sent->bytes)
			memmove((char *)transfers[i].buffer + at, sent->buffer,
				transfers[i].bytes - at < sent->bytes ? transfers[i].bytes - at : sent->bytes);
}

/* Of a sum's pieces nothing comes, which is as good as anything. */
static void *begin_none(void *state, const struct comm_transfer *transfers, int transfer_count,
	const struct comm_sums *sums)
{
	(void)state;
	count(transfers, transfer_count);
	if (sums)
		count(sums->transfers, sums->count);
	else
		receive(transfers, transfer_count);
	for (int i = 0; i < transfer_count; i++)
		if (transfers[i].receive)
			return (void *)(uintptr_t)transfers[i].bytes;
	return NULL;
}

static int next_run_none(void *state, void *exchange, size_t made, size_t *bytes, struct err *err)
{
	(void)state, (void)err;
	*bytes = (size_t)(uintptr_t)exchange - made;
	return 0;
}

static int finish_none(void *state, void *exchange, struct err *err)
{
	(void)state, (void)exchange, (void)err;
	return 0;
}

static void do_nothing(void *state)
{
	(void)state;
}

static int check_none(void *state, struct err *err)
{
	(void)state, (void)err;
	return 0;
}

static void leave_none(void *state, const char *why, const unsigned char flight[FLIGHT_SIZE])
{
	(void)state, (void)why, (void)flight;
}

static bool said_none(void *state, int rank, unsigned char flight[FLIGHT_SIZE], double *now)
{
	(void)state, (void)rank, (void)flight, (void)now;
	return false;
}

static const char *peer_none(void *state, int rank)
{
	(void)state, (void)rank;
	return "a rank";
}

const struct comm_provider no_network = {
	.name = "none",
	.open = open_none,
	.begin = begin_none,
	.next_run = next_run_none,
	.finish = finish_none,
	.interrupt = do_nothing,
	.check = check_none,
	.leave = leave_none,
	.said = said_none,
	.close = do_nothing,
	.peer = peer_none,
};
