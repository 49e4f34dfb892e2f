/* SPDX-License-Identifier: Apache-2.0 */
/* The one failure that ends a communicator: which came first, and its words. */
#include <stdio.h>
#include <string.h>

#include "common/clock.h"
#include "trainer/comm/comm_private.h"

#define NAMED 4        /* ranks that an error names; the rest are only counted */
#define REASON_MAX 800 /* bytes of the reason, after what this rank did */

bool comm_record_failure(struct comm *comm, enum failure failure, enum exit_status status,
	const char *why)
{
	if (comm->failure != FAILURE_NONE)
		return false;
	comm->failure = failure;
	__atomic_store_n(&comm->stopping, true, __ATOMIC_RELEASE);
	comm->failed_at = clock_now();
	err_fail(&comm->error, status, "%s", why);
	pthread_cond_broadcast(&comm->wake);
	pthread_cond_broadcast(&comm->settled);
	return true;
}

void comm_fail(struct comm *comm, enum failure failure, enum exit_status status, const char *why)
{
	pthread_mutex_lock(&comm->lock);
	bool first = comm_record_failure(comm, failure, status, why);
	pthread_mutex_unlock(&comm->lock);
	if (first)
		comm->provider->interrupt(comm->state);
}

void comm_fail_op(struct comm *comm, enum failure failure, const struct err *err)
{
	char why[sizeof comm->error.text];

	comm_record_failure(comm, failure, err->status, err->text);
	if (comm->failure == FAILURE_DEADLINE)
		snprintf(why, sizeof why, "%.600s, %.300s", comm->error.text, err->text);
	else
		memcpy(why, comm->error.text, sizeof why);
	err_fail(&comm->error, comm->error.status,
		"comm: couldn't complete %s of %s after %.1f s: %.*s", comm->now.operation, comm->now.label,
		clock_now() - comm->now.entered, REASON_MAX, why);
	comm->reason = strlen(comm->error.text) - strnlen(why, REASON_MAX);
	comm->worded = true;
}

void comm_word_idle_failure(struct comm *comm)
{
	if (comm->failure == FAILURE_NONE || comm->worded)
		return;
	size_t length = strlen(comm->error.text);
	if (comm->latest)
		err_prefix(&comm->error, "comm: after %s of %s", comm->latest, comm->now.label);
	else
		err_prefix(&comm->error, "comm");
	comm->reason = strlen(comm->error.text) - length;
}

/* Whether a peer has said no goodbye: it is stopped, dead or cut off. */
static bool is_silent(const struct comm *comm, int rank)
{
	unsigned char record[FLIGHT_SIZE];
	double now;

	return rank != comm->rank && !comm->provider->said(comm->state, rank, record, &now);
}

static bool is_named(const struct comm *comm, int rank)
{
	return strstr(comm->error.text, comm->provider->peer(comm->state, rank));
}

/* The number of ranks that the error names though they live: they were late, or waited
 * themselves. */
static int named_living(const struct comm *comm)
{
	int count = 0;

	for (int rank = 0; rank < comm->size; rank++)
		count += is_named(comm, rank) && !is_silent(comm, rank);
	return count;
}

/* A blind provider's error leaves out the ranks that it has named already. */
void comm_name_silent(struct comm *comm)
{
	bool blind = comm->provider->blind;
	char names[400] = "";
	int silent = 0;

	if (comm->failure != FAILURE_DEADLINE && comm->failure != FAILURE_LOST)
		return;
	/* The reason that another rank gave names that one as well. */
	if (!blind && named_living(comm) <= (comm->failure == FAILURE_LOST ? 1 : 0))
		return;
	for (int rank = 0; rank < comm->size; rank++) {
		if (!is_silent(comm, rank) || (blind && is_named(comm, rank)))
			continue;
		if (silent++ < NAMED)
			snprintf(names + strlen(names), sizeof names - strlen(names), "%s%.64s",
				silent > 1 ? ", " : "", comm->provider->peer(comm->state, rank));
	}
	if (silent > NAMED)
		snprintf(names + strlen(names), sizeof names - strlen(names), " and %d more",
			silent - NAMED);
	size_t used = strlen(comm->error.text);
	if (silent > 0)
		snprintf(comm->error.text + used, sizeof comm->error.text - used,
			"; nothing was heard of %s", names);
}
