/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/comm/comm_dry_run.h"

#include <stdlib.h>
#include <string.h>

#include "trainer/comm/comm_private.h"

void comm_dry_run_add(struct comm_sent_count *count, const struct comm_transfer *transfers,
	int transfer_count)
{
	for (int i = 0; i < transfer_count && count->node_of; i++) {
		bool inside = count->node_of[transfers[i].peer] == count->node_of[count->rank];
		struct comm_sent *sent = inside ? &count->inside : &count->outside;

		if (transfers[i].receive)
			continue;
		sent->messages++;
		sent->bytes += transfers[i].bytes;
	}
}

struct comm_sent_count *comm_dry_run_count(struct comm *comm)
{
	return comm->state;
}

static void *dry_open(const struct ident *ident, struct rdzv *rdzv,
	const struct comm_events *events, struct err *err)
{
	struct comm_sent_count *count = calloc(1, sizeof *count);

	(void)rdzv, (void)events;
	if (count)
		count->rank = ident->rank;
	else
		err_set(err, "comm: out of memory");
	return count;
}

/* Bytes. Gradients and weights are longer, and nobody reads them. */
#define WORDS ((size_t)1 << 20)

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
static void *dry_begin(void *state, const struct comm_transfer *transfers, int transfer_count,
	const struct comm_sums *sums)
{
	comm_dry_run_add(state, transfers, transfer_count);
	if (sums)
		comm_dry_run_add(state, sums->transfers, sums->count);
	else
		receive(transfers, transfer_count);
	for (int i = 0; i < transfer_count; i++)
		if (transfers[i].receive)
			return (void *)(uintptr_t)transfers[i].bytes;
	return NULL;
}

static int dry_next_run(void *state, void *exchange, size_t made, size_t *bytes, struct err *err)
{
	(void)state, (void)err;
	*bytes = (size_t)(uintptr_t)exchange - made;
	return 0;
}

static int dry_finish(void *state, void *exchange, struct err *err)
{
	(void)state, (void)exchange, (void)err;
	return 0;
}

static void do_nothing(void *state)
{
	(void)state;
}

static int dry_check(void *state, struct err *err)
{
	(void)state, (void)err;
	return 0;
}

static void dry_leave(void *state, const char *why, const unsigned char flight[FLIGHT_SIZE])
{
	(void)state, (void)why, (void)flight;
}

static bool dry_said(void *state, int rank, unsigned char flight[FLIGHT_SIZE], double *now)
{
	(void)state, (void)rank, (void)flight, (void)now;
	return false;
}

static const char *dry_peer(void *state, int rank)
{
	(void)state, (void)rank;
	return "a rank of a world that does not exist";
}

const struct comm_provider comm_dry_run = {
	.name = "dry run",
	.open = dry_open,
	.begin = dry_begin,
	.next_run = dry_next_run,
	.finish = dry_finish,
	.interrupt = do_nothing,
	.check = dry_check,
	.leave = dry_leave,
	.said = dry_said,
	.close = free,
	.peer = dry_peer,
};
