/* SPDX-License-Identifier: Apache-2.0 */
/* How a program ends: the last save is durable, all ranks have the same exit status, and no rank
 * leaves before the others may. */
#include "config.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/notice.h"
#include "launch/requeue_ask.h"
#include "launch/spot_watch.h"
#include "lib/muster_private.h"

#define LAST_CALL_SECONDS 5.0  /* for the others to come, once one of them is lost */
#define RECORD_SECONDS 30.0    /* for rank 0 to record the end and ask Slurm for the next attempt */
#define LAST_WORDS_SECONDS 2.0 /* Slurm's PMIx kills the step once a rank leaves after a loss */
#define STATUS_MOST 255        /* the largest exit status */
#define LONGEST_SECONDS 1e8    /* twice this is still a valid timeout */

static bool is_good(int status)
{
	return status == MUSTER_OK || status == MUSTER_REQUEUE;
}

/* This rank's status. A good status is not true unless the last save is durable. */
static int own_end(struct muster_ckpt *ckpt, int status, double seconds)
{
	if (status < 0 || status > STATUS_MOST)
		return MUSTER_FAULT;
	int saved = is_good(status) ? muster_ckpt_drain(ckpt, seconds) : MUSTER_OK;
	return saved ? saved : status;
}

/* The status of all ranks. Rank 0 has `seconds` for its last save before it comes here. A rank in
 * another call hears of a failure there and then comes too. */
static int common_end(struct muster *muster, int status, double seconds)
{
	const struct deadline end = deadline_in(2 * seconds);
	const char *why = NULL;
	bool together;
	if (status == MUSTER_REQUEUE)
		why = notice_signal() ? notice_name(notice_signal()) : ""; /* another rank may know */
	do {
		double left = status == MUSTER_LOST ? LAST_CALL_SECONDS : 2 * seconds;
		status = muster_agree_on_end(muster, status, why, left, &together);
		why = NULL;
	} while (!together && muster->met && !deadline_passed(end));
	muster->met = together;
	return status;
}

/* What was handed over is written even if the run has failed. If a rank is lost, Slurm may kill the
 * step at any moment: the plugin's checkpoint service survives that. */
static void close_ckpt(struct muster *muster, struct muster_ckpt *ckpt, int status, const char *why,
	double seconds)
{
	struct err err;
	if (!is_good(status) && muster->met && muster_ckpt_drain(ckpt, seconds)
		&& strcmp(muster_error(), why ? why : "") != 0)
		log_warn("%s", muster_error());
	if (status == MUSTER_OK)
		why = "finished";
	else if (status == MUSTER_REQUEUE && notice_signal())
		why = notice_name(notice_signal());
	if (muster_ckpt_leave(ckpt, status, why, &err) < 0)
		log_warn("checkpoint: couldn't record the end: %s", err.text);
}

/* A rank that leaves early must not end the others. */
static void part(struct muster *muster, double seconds)
{
	if (muster->met)
		muster_fence(muster, seconds + RECORD_SECONDS);
	else if (muster->ident.world_size > 1)
		deadline_sleep(deadline_in(LAST_WORDS_SECONDS), LAST_WORDS_SECONDS);
	muster_close(muster, muster->met);
}

int muster_end(struct muster *muster, struct muster_ckpt *ckpt, struct ncclComm *comm, int status,
	double timeout)
{
	struct err why;
	if (!muster)
		return status;
	if (muster_check_timeout(timeout, &why) < 0) {
		status = muster_failed(&why);
		timeout = 0;
	}
	double seconds = fmin(muster_or(timeout, muster->timeout), LONGEST_SECONDS);
	muster_stand(muster, FLIGHT_CLOSE);
	status = common_end(muster, own_end(ckpt, status, seconds), seconds);
	err_fail(&why, (enum exit_status)status, "%s", muster_error());
	if (muster_nccl_end(muster, comm, is_good(status), seconds) && is_good(status))
		log_warn("%s", muster_error());
	bool durable = status == MUSTER_REQUEUE && ckpt;
	close_ckpt(muster, ckpt, status, why.text, seconds);
	spot_watch_end(durable);
	if (muster->ident.rank == 0)
		requeue_ask(&muster->ident, status);
	part(muster, seconds);
	return status == MUSTER_OK ? MUSTER_OK : muster_failed(&why);
}
