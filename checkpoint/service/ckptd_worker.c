/* SPDX-License-Identifier: Apache-2.0 */
/* The worker's loop first decides saves that are over, then writes the next one. So a part that is
 * late on another node holds up no writing, and saves are committed in order. It skips what an
 * earlier service of this attempt has already made durable. */
#include "config.h"
#include "checkpoint/service/ckptd_worker_private.h"

#include <inttypes.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>

#include "checkpoint/directory/owner.h"
#include "checkpoint/directory/remove.h"
#include "checkpoint/service/ckptd_already.h"
#include "common/log.h"
#include "common/thread.h"

#define PROGRESS_SECONDS 0.25
/* Seconds for which a save takes only the processor time that training leaves. */
#define SPARE_SECONDS 5.0
#define SPARE_LEAST ((size_t)64 << 20) /* bytes; smaller snapshots are not worth that */
#define BEAT_SECONDS (OWNER_HEARTBEAT / 4)

/* ---- news ---- */

void ckptd_worker_post(struct ckptd_worker *worker, enum ckptd_news_type type, int buffer,
	const struct save_result *result, char *text)
{
	struct ckptd_news *news = ckptd_news_make(type, buffer, result);
	news->text = text;
	pthread_mutex_lock(&worker->lock);
	ckptd_news_put(&worker->news, news);
	pthread_mutex_unlock(&worker->lock);
	eventfd_write(worker->plan.wake, 1);
}

/* Progress is not queued, since only the latest matters. */
struct ckptd_news *ckptd_worker_news(struct ckptd_worker *worker)
{
	pthread_mutex_lock(&worker->lock);
	struct ckptd_news *news = ckptd_news_take(&worker->news);
	if (!news && worker->progressed && worker->jobs && (news = calloc(1, sizeof *news)))
		*news = (struct ckptd_news) { .type = NEWS_PROGRESS,
			.buffer = -1,
			.result = { .step = worker->jobs->message.save.at.step, .bytes = worker->done },
			.total = worker->total };
	worker->progressed = false;
	pthread_mutex_unlock(&worker->lock);
	return news;
}

/* ---- one save: whole, or this client's part of it ---- */

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
	eventfd_write(worker->plan.wake, 1);
	/* The trainer, which wrote the heartbeat, is gone. Without a heartbeat another job could take
	 * over the directory during the save. */
	if (alone && now >= worker->next_beat) {
		worker->next_beat = now + BEAT_SECONDS;
		owner_heartbeat(&worker->plan.dir, worker->plan.attach->token, NULL);
	}
}

/* Released by ckptd_save_free_snapshot. */
static int make_snapshot(const struct ckptd_worker *worker, const struct ckptd_save *save,
	struct snapshot *snapshot, struct err *err)
{
	return ckptd_save_snapshot(save, worker->plan.attach, worker->plan.memory->base[save->buffer],
		snapshot, err);
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
	struct snapshot snapshot;
	if (make_snapshot(worker, save, &snapshot, &result.err) == 0) {
		ckpt_save(&worker->plan.dir, &snapshot, worker->plan.attach->token, &options, &result,
			&result.err);
		ckptd_save_free_snapshot(&snapshot);
	}
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
	struct snapshot snapshot;
	char *text = ckptd_already_part(dir, save->at.step, attach->token, (int)attach->part,
		(int)attach->parts, size);
	if (text)
		return text;
	if (save->buffer < 0) {
		err_fail(&result->err, EXIT_LOST,
			"checkpoint: part %d of %d, which was written, is not there any more",
			(int)attach->part + 1, (int)attach->parts);
		return NULL;
	}
	if (make_snapshot(worker, save, &snapshot, &result->err) < 0)
		return NULL;
	int rc =
		ckpt_save_part(dir, &snapshot, attach->token, &options, &text, size, result, &result->err);
	ckptd_save_free_snapshot(&snapshot);
	return rc < 0 ? NULL : text;
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

static void do_save(struct ckptd_worker *worker, const struct ckptd_save *save)
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

/* ---- the thread ---- */

/* Called with the lock held; releases it while it works. Returns false when no save is over. */
static bool decide_next(struct ckptd_worker *worker)
{
	struct ckptd_parts_step *save = NULL;
	enum ckptd_parts_verdict verdict = PARTS_WAIT;
	if (worker->parts)
		verdict = ckptd_parts_over(worker->parts, clock_now(), &save);
	if (verdict == PARTS_WAIT)
		return false;
	worker->deciding = save->step;
	pthread_mutex_unlock(&worker->lock);
	ckptd_worker_decide(worker, verdict, save);
	ckptd_parts_free(worker->parts, save);
	pthread_mutex_lock(&worker->lock);
	worker->deciding = -1;
	return true;
}

/* Called with the lock held; releases it while it works. Returns false when no save waits. */
static bool save_next(struct ckptd_worker *worker)
{
	struct job *job = worker->jobs;
	if (!job)
		return false;
	worker->working = true;
	worker->done = worker->total = 0;
	pthread_mutex_unlock(&worker->lock);
	do_save(worker, &job->message.save);
	pthread_mutex_lock(&worker->lock);
	worker->working = worker->progressed = false;
	worker->jobs = job->next;
	ckptd_message_release(&job->message);
	free(job);
	return true;
}

/* Called with the lock held, which it releases, when there is nothing else to do. It maps the
 * snapshot memory, which is ready long before the first save; that save may be urgent. */
static bool map_next(struct ckptd_worker *worker)
{
	const struct snapshot_memory *memory = worker->plan.memory;
	if (worker->mapped_buffer == memory->buffers)
		return false;
	pthread_mutex_unlock(&worker->lock);
	worker->mapped = snapshot_memory_map_ahead(memory, worker->mapped_buffer, worker->mapped);
	if (worker->mapped == memory->bytes) {
		worker->mapped_buffer++;
		worker->mapped = 0;
	}
	pthread_mutex_lock(&worker->lock);
	return true;
}

static void wait_for_work(struct ckptd_worker *worker)
{
	double next = worker->parts ? ckptd_parts_next(worker->parts) : 0;
	struct timespec until = deadline_timespec((struct deadline) { next });
	if (next > 0)
		pthread_cond_timedwait(&worker->changed, &worker->lock, &until);
	else
		pthread_cond_wait(&worker->changed, &worker->lock);
}

static void *run(void *arg)
{
	struct ckptd_worker *worker = arg;
	/* Gives this thread, and those that it starts, their own umask: files get the modes that the
	 * client would give them. */
	if (unshare(CLONE_FS) == 0)
		umask((mode_t)worker->plan.attach->umask);
	pthread_mutex_lock(&worker->lock);
	while (!worker->ending || worker->jobs)
		if (!decide_next(worker) && !save_next(worker) && !map_next(worker)) {
			eventfd_write(worker->plan.wake, 1);
			if (!worker->ending)
				wait_for_work(worker);
		}
	pthread_mutex_unlock(&worker->lock);
	return NULL;
}

/* ---- calls of the session ---- */

static void release(struct ckptd_worker *worker)
{
	ckptd_news_clear(&worker->news);
	ckptd_parts_destroy(worker->parts);
	pthread_cond_destroy(&worker->changed);
	pthread_mutex_destroy(&worker->lock);
	free(worker);
}

static int fill(struct ckptd_worker *worker, struct err *err)
{
	const struct ckptd_attach *attach = worker->plan.attach;
	if (attach->parts > 1 && attach->part == 0) {
		worker->parts = ckptd_parts_create((int)attach->parts, worker->plan.patience);
		if (!worker->parts)
			return err_set(err, "service: no memory");
	}
	int error = thread_start(&worker->thread, run, worker);
	return error ? err_set(err, "service: couldn't start a thread: %s", strerror(error)) : 0;
}

struct ckptd_worker *ckptd_worker_start(const struct ckptd_worker_plan *plan, struct err *err)
{
	struct ckptd_worker *worker = calloc(1, sizeof *worker);
	if (!worker) {
		err_set(err, "service: no memory");
		return NULL;
	}
	worker->plan = *plan;
	worker->retention = (struct retention) { .keep_last = (size_t)plan->attach->keep_last,
		.keep_every = plan->attach->keep_every,
		.keep_best = (size_t)plan->attach->keep_best };
	worker->left_over = worker->deciding = -1;
	pthread_mutex_init(&worker->lock, NULL);
	deadline_condition(&worker->changed);
	if (fill(worker, err) == 0)
		return worker;
	release(worker);
	return NULL;
}

int ckptd_worker_save(struct ckptd_worker *worker, struct ckptd_message *message)
{
	struct job *job = calloc(1, sizeof *job), **at;
	if (!job)
		return -1;
	job->message = *message;
	*message = (struct ckptd_message) { 0 };
	pthread_mutex_lock(&worker->lock);
	for (at = &worker->jobs; *at; at = &(*at)->next)
		;
	*at = job;
	pthread_cond_signal(&worker->changed);
	pthread_mutex_unlock(&worker->lock);
	return 0;
}

/* Whether the save is being decided, or the session has not yet taken the news of that. */
static bool is_being_decided(const struct ckptd_worker *worker, int64_t step)
{
	const struct ckptd_news *news = worker->news.first;
	while (news && (news->type != NEWS_DECIDED || news->result.step != step))
		news = news->next;
	return news || worker->deciding == step;
}

int ckptd_worker_tell(struct ckptd_worker *worker, int64_t step, int part, char *text, size_t size,
	const struct err *fault)
{
	int rc = 0;
	pthread_mutex_lock(&worker->lock);
	/* A part that is reported again must not begin the save anew. */
	if (is_being_decided(worker, step))
		free(text);
	else
		rc = ckptd_parts_tell(worker->parts, step, part, text, size, fault, clock_now());
	pthread_cond_signal(&worker->changed);
	pthread_mutex_unlock(&worker->lock);
	return rc;
}

void ckptd_worker_left(struct ckptd_worker *worker, int part, int64_t step)
{
	pthread_mutex_lock(&worker->lock);
	ckptd_parts_left(worker->parts, part, step);
	pthread_cond_signal(&worker->changed);
	pthread_mutex_unlock(&worker->lock);
}

static bool is_busy(const struct ckptd_worker *worker)
{
	const struct ckptd_parts_step *save = worker->parts ? ckptd_parts_first(worker->parts) : NULL;
	while (save && !save->own)
		save = save->next;
	return worker->jobs || worker->deciding >= 0 || save || worker->news.first;
}

bool ckptd_worker_busy(struct ckptd_worker *worker)
{
	pthread_mutex_lock(&worker->lock);
	bool busy = is_busy(worker);
	pthread_mutex_unlock(&worker->lock);
	return busy;
}

void ckptd_worker_alone(struct ckptd_worker *worker)
{
	pthread_mutex_lock(&worker->lock);
	worker->alone = true;
	pthread_mutex_unlock(&worker->lock);
}

void ckptd_worker_hurry(struct ckptd_worker *worker, struct deadline deadline)
{
	pthread_mutex_lock(&worker->lock);
	if (worker->parts)
		ckptd_parts_hurry(worker->parts, deadline.at);
	pthread_cond_signal(&worker->changed);
	pthread_mutex_unlock(&worker->lock);
}

void ckptd_worker_list(struct ckptd_worker *worker, void (*line)(void *arg, const char *text),
	void *arg)
{
	const char *path = worker->plan.attach->path;
	struct err text;
	char missing[100];
	pthread_mutex_lock(&worker->lock);
	for (const struct job *job = worker->jobs; job; job = job->next) {
		if (job == worker->jobs && worker->working)
			err_set(&text, "step %" PRId64 " of %s: %.2f of %.2f GB are written",
				job->message.save.at.step, path, (double)worker->done * 1e-9,
				(double)worker->total * 1e-9);
		else
			err_set(&text, "step %" PRId64 " of %s: it waits for the save before it",
				job->message.save.at.step, path);
		line(arg, text.text);
	}
	const struct ckptd_parts_step *save = worker->parts ? ckptd_parts_first(worker->parts) : NULL;
	for (; save; save = save->next)
		if (save->own) {
			err_set(&text, "step %" PRId64 " of %s: it waits for part %s of %d", save->step, path,
				ckptd_parts_missing(worker->parts, save, missing, sizeof missing),
				(int)worker->plan.attach->parts);
			line(arg, text.text);
		}
	pthread_mutex_unlock(&worker->lock);
}

void ckptd_worker_stop(struct ckptd_worker *worker)
{
	if (!worker)
		return;
	pthread_mutex_lock(&worker->lock);
	worker->ending = true;
	pthread_cond_signal(&worker->changed);
	pthread_mutex_unlock(&worker->lock);
	pthread_join(worker->thread, NULL);
	release(worker);
}
