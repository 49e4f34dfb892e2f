/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fakes/counting_network.h"

struct comm_sent_count sent_count;

static void *open_tcp(const struct ident *ident, struct rdzv *rdzv,
	const struct comm_events *events, struct err *err)
{
	sent_count.rank = ident->rank;
	return comm_tcp.open(ident, rdzv, events, err);
}

static void *begin_tcp(void *state, const struct comm_transfer *transfers, int transfer_count,
	const struct comm_sums *sums)
{
	comm_dry_run_add(&sent_count, transfers, transfer_count);
	if (sums)
		comm_dry_run_add(&sent_count, sums->transfers, sums->count);
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
