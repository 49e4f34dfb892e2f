/* SPDX-License-Identifier: Apache-2.0 */
/* How a worker writes a save: whole, or its part of it. It skips what an earlier service of this
 * attempt has already made durable. */
#include "config.h"
#include "checkpoint/service/ckptd_worker_private.h"

#include "checkpoint/directory/owner.h"
#include "checkpoint/directory/remove.h"
#include "checkpoint/service/ckptd_already.h"
#include "common/log.h"

#define PROGRESS_SECONDS 0.25
/* Seconds for which a save takes only the processor time that training leaves. */
#define SPARE_SECONDS 5.0
#define SPARE_LEAST ((size_t)64 << 20) /* bytes; smaller snapshots are not worth that */
#define BEAT_SECONDS (OWNER_HEARTBEAT / 4)

static void on_progress(void *arg, uint64_t done, uint64_t total)
{
	struct ckptd_worker *worker = arg;
	double now = clock_now();
	if (now < worker->next_progress)
		return;
	worker->next_progress = now + PROGRESS_SECONDS;
	pthread_mutex_lock(&worker->lock);
	worker->done = done;
	worker->total = total;
	worker->progressed = true;
	bool alone = worker->alone;
	pthread_mutex_unlock(&worker->lock);
	ckptd_worker_wake_owner(worker);
	/* The trainer, which wrote the heartbeat, is gone. Without a heartbeat another job could take
	 * over the directory during the save. */
	if (alone && now >= worker->next_beat) {
		worker->next_beat = now + BEAT_SECONDS;
		owner_heartbeat(&worker->plan.dir, worker->plan.attach->token, NULL);
	}
}

static const struct snapshot *snapshot_of(struct ckptd_worker *worker,
	const struct ckptd_save *save)
{
	struct snapshot *snapshot = &worker->snapshots[save->buffer];
	snapshot->at = save->at;
	return snapshot;
}

void ckptd_worker_clean_up(struct ckptd_worker *worker, int64_t durable)
{
	struct err err;
	const char *token = worker->plan.attach->token;
	/* A disk on which a save or a removal failed may also have refused to remove its files. The
	 * disk works now, so try again. */
	remove_own_leftovers(&worker->plan.dir, durable, token);
	if (remove_expired(&worker->plan.dir, &worker->retention, token, &err) < 0)
		log_error("checkpoint: %s", err.text);
}

/* While the client lives, it either trains, or waits for this save and leaves the processors to
 * it. */
static struct ckpt_save_options options_for(struct ckptd_worker *worker)
{
	pthread_mutex_lock(&worker->lock);
	bool spare = !worker->alone && !worker->ending && worker->plan.memory->bytes >= SPARE_LEAST;
	pthread_mutex_unlock(&worker->lock);
	return (struct ckpt_save_options) { .spare = spare ? SPARE_SECONDS : 0,
		.progress = on_progress,
		.arg = worker };
}

static void save_whole(struct ckptd_worker *worker, const struct ckptd_save *save)
{
	const struct ckpt_save_options options = options_for(worker);
	struct save_result result = { .outcome = SAVE_FAILED, .step = save->at.step };
	ckpt_save(&worker->plan.dir, snapshot_of(worker, save), worker->plan.attach->token, &options,
		&result, &result.err);
	ckptd_worker_post(worker, NEWS_ENDED, (int)save->buffer, &result, NULL);
	if (result.outcome == SAVE_DURABLE)
		ckptd_worker_clean_up(worker, save->at.step);
}

/* The text of this part's file, once it is durable; NULL on error. */
static char *write_part(struct ckptd_worker *worker, const struct ckptd_save *save, size_t *size,
	struct save_result *result)
{
	const struct ckpt_save_options options = options_for(worker);
	const struct ckptd_attach *attach = worker->plan.attach;
	const struct ckpt_dir *dir = &worker->plan.dir;
	char *text = ckptd_already_part(dir, save->at.step, attach->token, (int)attach->part,
		(int)attach->parts, size);
	if (text)
		return text;
	if (save->buffer < 0)
		err_fail(&result->err, EXIT_LOST,
			"checkpoint: part %d of %d, which was written, is not there any more",
			(int)attach->part + 1, (int)attach->parts);
	else if (ckpt_save_part(dir, snapshot_of(worker, save), attach->token, &options, &text, size,
				 result, &result->err)
		< 0)
		text = NULL;
	return text;
}

static void tell_own(struct ckptd_worker *worker, int64_t step, char *text, size_t size,
	const struct err *fault)
{
	pthread_mutex_lock(&worker->lock);
	ckptd_parts_tell(worker->parts, step, 0, text, size, fault, clock_now());
	pthread_mutex_unlock(&worker->lock);
}

static int begin_own(struct ckptd_worker *worker, int64_t step, struct err *err)
{
	pthread_mutex_lock(&worker->lock);
	int rc = ckptd_parts_begin(worker->parts, step, clock_now());
	pthread_mutex_unlock(&worker->lock);
	return rc == 0
		? 0
		: err_fail(err, EXIT_LOST, "checkpoint: too many saves wait for their parts, or no memory");
}

static void save_part(struct ckptd_worker *worker, const struct ckptd_save *save)
{
	struct save_result result = { .outcome = SAVE_FAILED, .step = save->at.step };
	size_t size = 0;
	int buffer = (int)save->buffer;
	if (worker->left_over == save->at.step)
		worker->left_over = -1;
	if (worker->parts && begin_own(worker, save->at.step, &result.err) < 0) {
		ckptd_worker_post(worker, NEWS_ENDED, buffer, &result, NULL);
		return;
	}
	char *text = write_part(worker, save, &size, &result);
	if (text)
		result.outcome = SAVE_WRITTEN;
	ckptd_worker_post(worker, text && !worker->parts ? NEWS_PART : NEWS_ENDED, buffer, &result,
		worker->parts ? NULL : text);
	if (worker->parts)
		tell_own(worker, save->at.step, text, size, &result.err);
}

void ckptd_worker_do_save(struct ckptd_worker *worker, const struct ckptd_save *save)
{
	const struct ckptd_attach *attach = worker->plan.attach;
	struct save_result there = { .outcome = attach->part == 0 ? SAVE_DURABLE : SAVE_WRITTEN,
		.step = save->at.step,
		.taken = true };
	worker->next_progress = clock_now() + PROGRESS_SECONDS;
	if (ckptd_already_committed(&worker->plan.dir, save->at.step, attach->token)) {
		ckptd_worker_post(worker, NEWS_ENDED, (int)save->buffer, &there, NULL);
		if (worker->parts)
			ckptd_worker_post(worker, NEWS_DECIDED, -1, &there, NULL);
	} else if (attach->parts == 1) {
		save_whole(worker, save);
	} else {
		save_part(worker, save);
	}
}
