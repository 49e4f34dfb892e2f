/* SPDX-License-Identifier: Apache-2.0 */
/* How a worker ends a save by several services: commits it when all parts are durable, and
 * otherwise fails it and removes its files. */
#include "config.h"
#include "checkpoint/service/ckptd_worker_private.h"

#include "common/clock.h"
#include "common/log.h"

static void discard(struct ckptd_worker *worker, int64_t step)
{
	struct err err;
	if (step >= 0 && ckpt_discard(&worker->plan.dir, step, worker->plan.attach->token, &err) < 0)
		log_warn(
			"checkpoint: couldn't remove an unfinished save, and tries again after the next: %s",
			err.text);
}

static int commit(struct ckptd_worker *worker, const struct ckptd_parts_step *save,
	struct save_result *result)
{
	const struct ckptd_attach *attach = worker->plan.attach;
	if (ckpt_commit(&worker->plan.dir, save->step, attach->token, (int)attach->parts, save->texts,
			save->sizes, result, &result->err)
		< 0)
		return -1;
	result->seconds = clock_now() - save->began;
	return 0;
}

/* Sets err to the reason why a save without all its parts has failed. */
static void explain(struct ckptd_worker *worker, enum ckptd_parts_verdict verdict,
	const struct ckptd_parts_step *save, struct err *err)
{
	char missing[100];
	ckptd_parts_missing(worker->parts, save, missing, sizeof missing);
	int parts = (int)worker->plan.attach->parts;
	if (save->fault.text[0])
		*err = save->fault;
	else if (verdict == PARTS_LATE)
		err_fail(err, EXIT_LOST, "checkpoint: no word came in time of part %s of %d", missing,
			parts);
	else
		err_fail(err, EXIT_LOST,
			"checkpoint: no word came of part %s of %d, and a later save is complete", missing,
			parts);
}

/* The files of a save that is late may be complete: they stay until a later save ends. */
void ckptd_worker_decide(struct ckptd_worker *worker, enum ckptd_parts_verdict verdict,
	struct ckptd_parts_step *save)
{
	struct save_result result = { .outcome = SAVE_FAILED, .step = save->step };
	bool committed = verdict == PARTS_COMPLETE && commit(worker, save, &result) == 0;
	if (!committed && verdict != PARTS_COMPLETE)
		explain(worker, verdict, save, &result.err);
	if (!committed && verdict != PARTS_LATE)
		discard(worker, save->step);
	if (committed || (save->own && !save->own_failed))
		ckptd_worker_post(worker, NEWS_ENDED, -1, &result, NULL);
	ckptd_worker_post(worker, NEWS_DECIDED, -1, &result, NULL);
	if (save->own) {
		discard(worker, worker->left_over == save->step ? -1 : worker->left_over);
		worker->left_over = verdict == PARTS_LATE ? save->step : -1;
	}
	if (committed)
		ckptd_worker_clean_up(worker, save->step);
}
