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
	struct ckpt_saved saved;
	struct err err = { 0 };
	if (ckpt_save(&worker->plan.dir, snapshot_of(worker, save), worker->plan.attach->token,
			&options, &saved, &err)
		< 0) {
		ckptd_worker_post_failed(worker, save->at.step, (int)save->buffer, &err);
		return;
	}
	ckptd_worker_post_saved(worker, NEWS_DURABLE, save->at.step, (int)save->buffer, &saved);
	ckptd_worker_clean_up(worker, save->at.step);
}

/* The text of this part's file, once it is durable; NULL on error. */
static char *write_part(struct ckptd_worker *worker, const struct ckptd_save *save, size_t *size,
	struct ckpt_saved *saved, struct err *err)
{
	const struct ckpt_save_options options = options_for(worker);
	const struct ckptd_attach *attach = worker->plan.attach;
	const struct ckpt_dir *dir = &worker->plan.dir;
	char *text = ckptd_already_part(dir, save->at.step, attach->token, (int)attach->part,
		(int)attach->parts, size);
	if (text)
		return text;
	if (save->buffer < 0)
		err_fail(err, EXIT_LOST,
			"checkpoint: part %d of %d, which was written, is not there any more",
			(int)attach->part + 1, (int)attach->parts);
	else if (ckpt_save_part(dir, snapshot_of(worker, save), attach->token, &options, &text, size,
				 saved, err)
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
	struct ckpt_saved saved = { 0 };
	struct err err = { 0 };
	size_t size = 0;
	int buffer = (int)save->buffer;
	if (worker->left_over == save->at.step)
		worker->left_over = -1;
	if (worker->parts && begin_own(worker, save->at.step, &err) < 0) {
		ckptd_worker_post_failed(worker, save->at.step, buffer, &err);
		return;
	}
	char *text = write_part(worker, save, &size, &saved, &err);
	if (!text)
		ckptd_worker_post_failed(worker, save->at.step, buffer, &err);
	else if (worker->parts)
		ckptd_worker_post_saved(worker, NEWS_WRITTEN, save->at.step, buffer, &saved);
	if (worker->parts) {
		tell_own(worker, save->at.step, text, size, &err);
	} else if (text) {
		struct ckptd_news *news = ckptd_news_make(NEWS_PART, save->at.step, buffer);
		news->bytes = saved.bytes;
		news->seconds = saved.seconds;
		news->text = text;
		news->size = size;
		ckptd_worker_post(worker, news);
	}
}

void ckptd_worker_do_save(struct ckptd_worker *worker, const struct ckptd_save *save)
{
	const struct ckptd_attach *attach = worker->plan.attach;
	worker->next_progress = clock_now() + PROGRESS_SECONDS;
	if (ckptd_already_committed(&worker->plan.dir, save->at.step, attach->token)) {
		const struct ckpt_saved saved = { .taken = true };
		ckptd_worker_post_saved(worker, attach->part == 0 ? NEWS_DURABLE : NEWS_WRITTEN,
			save->at.step, (int)save->buffer, &saved);
		if (worker->parts)
			ckptd_worker_post_decided(worker, save->at.step, true);
	} else if (attach->parts == 1) {
		save_whole(worker, save);
	} else {
		save_part(worker, save);
	}
}
