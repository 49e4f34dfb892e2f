/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the clocks by pings. All operations of a ping are queued beforehand and read the clock
 * on the communicator's thread, so that the round trip does not include the waking of a thread. */
#include "trainer/run/trace_clock.h"

#include <math.h>

#include "common/clock.h"

#define PINGS 16

/* One round trip. On rank 0: when it left, the other clock's value, and when it was back; on the
 * other rank: its own clock in between. */
struct ping {
	double sent, remote, back;
};

static int note_sent(void *arg, struct err *err)
{
	((struct ping *)arg)->sent = clock_now();
	return 0;
}

static int note_remote(void *arg, struct err *err)
{
	((struct ping *)arg)->remote = clock_now();
	return 0;
}

static int note_back(void *arg, struct err *err)
{
	((struct ping *)arg)->back = clock_now();
	return 0;
}

/* Queues rank 0's side of a ping to `peer`, or the other rank's side. */
static comm_ticket queue(struct comm *comm, int peer, struct ping *ping)
{
	static const char label[] = "the clocks";
	struct comm_transfer out = { peer, &ping->sent, sizeof ping->sent, 0 };
	struct comm_transfer in = { peer, &ping->remote, sizeof ping->remote, 1 };

	if (comm_rank(comm) == 0) {
		comm_call(comm, label, note_sent, ping);
		comm_exchange(comm, label, &out, 1, NULL, NULL);
		return comm_exchange(comm, label, &in, 1, note_back, ping);
	}
	in.buffer = &ping->sent;
	out.buffer = &ping->remote;
	comm_exchange(comm, label, &in, 1, note_remote, ping);
	return comm_exchange(comm, label, &out, 1, NULL, NULL);
}

static struct trace_clock best_of(const struct ping pings[PINGS])
{
	struct trace_clock best = { .error = INFINITY };

	for (int i = 0; i < PINGS; i++) {
		const struct ping *ping = &pings[i];
		double error = (ping->back - ping->sent) / 2, middle = ping->sent + error;

		if (error < best.error)
			best = (struct trace_clock) { middle, ping->remote - middle, error };
	}
	return best;
}

int trace_clock_measure(struct comm *comm, struct trace_clock *clocks, struct err *err)
{
	int rank = comm_rank(comm);

	for (int peer = 1; peer < comm_size(comm); peer++) {
		struct ping pings[PINGS];
		comm_ticket last = 0;

		if (rank != 0 && rank != peer)
			continue;
		for (int i = 0; i < PINGS; i++)
			last = queue(comm, rank == 0 ? peer : 0, &pings[i]);
		if (comm_wait(comm, last, err) < 0)
			return -1;
		if (rank == 0)
			clocks[peer] = best_of(pings);
	}
	if (rank == 0)
		clocks[0] = (struct trace_clock) { .at = clock_now() };
	return 0;
}

double trace_clock_on_axis(const struct trace_clock *before, const struct trace_clock *after,
	double time)
{
	double at = time - before->offset, span = after->at - before->at;
	double part = span > 0 ? (at - before->at) / span : 0;

	return time - (before->offset + part * (after->offset - before->offset));
}
