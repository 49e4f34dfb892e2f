/* SPDX-License-Identifier: Apache-2.0 */
/* The communicator's provider for a world of one, where there is no peer to exchange anything
 * with. */
#include "trainer/comm/comm_provider.h"

static void *open_state(const struct ident *ident, struct rdzv *rdzv,
	const struct comm_events *events, struct err *err)
{
	static char nothing;
	return &nothing;
}

static void *begin(void *state, const struct comm_transfer *transfers, int count,
	const struct comm_sums *sums)
{
	return state;
}

static int next_run(void *state, void *exchange, size_t made, size_t *bytes, struct err *err)
{
	*bytes = 0;
	return 0;
}

static int finish(void *state, void *exchange, struct err *err)
{
	return err_set(err, "a world of one has no peers");
}

static void interrupt(void *state) {}

static int check(void *state, struct err *err)
{
	return 0;
}

static void leave(void *state, const char *why, const unsigned char flight[FLIGHT_SIZE]) {}

static bool said(void *state, int rank, unsigned char flight[FLIGHT_SIZE], double *now)
{
	return false;
}

static void close_state(void *state) {}

static const char *peer(void *state, int rank)
{
	return "rank 0";
}

const struct comm_provider comm_single = {
	.name = "single",
	.open = open_state,
	.begin = begin,
	.next_run = next_run,
	.finish = finish,
	.interrupt = interrupt,
	.check = check,
	.leave = leave,
	.said = said,
	.close = close_state,
	.peer = peer,
};
