/* SPDX-License-Identifier: Apache-2.0 */
/* One loop: what is over is decided, then the next save is written. So a part that another node is late with holds up no
 * writing, and saves are committed in their order. */
#include "config.h"
#include "checkpoint/ckptd_worker.h"

#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/ckpt_save.h"
#include "checkpoint/ckptd_already.h"
#include "checkpoint/ckptd_attach.h"
#include "checkpoint/ckptd_parts.h"
#include "checkpoint/owner.h"
#include "checkpoint/retention.h"
#include "common/auto.h"
#include "common/log.h"

#define PROGRESS_SECONDS 0.25
#define SPARE_SECONDS 5.0              /* for so long a save takes only the processor time that training leaves */
#define SPARE_LEAST ((size_t)64 << 20) /* bytes of a snapshot that are worth that */
#define BEAT_SECONDS (OWNER_HEARTBEAT / 4)

/* A save that waits. */
struct job {
	struct job *next;
	struct ckptd_save save;
};

struct ckptd_worker {
	struct ckptd_worker_plan plan;
	struct retention retention;
	struct snapshot snapshots[SNAPSHOT_SLOTS];
	pthread_t thread;
	double next_progress, next_beat;  /* the thread's own */
	int mapped_slot;                  /* the same: slots in front of it, and bytes in it, that are mapped */
	size_t mapped;
	int64_t left_over;                /* the same: a failed save whose files may be complete; -1: none */

	pthread_mutex_t lock;             /* of all below */
	pthread_cond_t changed;
	struct job *jobs;                 /* the first is being done while `working` */
	bool working, deciding, ending, alone;
	uint64_t done, total;             /* bytes of the save that is being written */
	bool progressed;
	struct ckptd_parts *parts;        /* part 0 of several; else NULL */
	struct ckptd_news *news, *last_news;
};

/* ---- news ---- */

void ckptd_news_free(struct ckptd_news *news)
{
	if (news)
		free(news->text);
	free(news);
}

static void wake_owner(const struct ckptd_worker *worker)
{
	const uint64_t one = 1;
	ssize_t ignored = write(worker->plan.wake, &one, sizeof one);
	(void)ignored;
}

/* What became of a save is never dropped: where there is no memory for it, it waits for some. */
static struct ckptd_news *make_news(enum ckptd_news_type type, int64_t step, int slot)
{
	struct ckptd_news *news;
	while (!(news = calloc(1, sizeof *news)))
		deadline_sleep(deadline_in(1), 0.1);
	*news = (struct ckptd_news){ .type = type, .step = step, .slot = slot };
	return news;
}

static void post(struct ckptd_worker *worker, struct ckptd_news *news)
{
	pthread_mutex_lock(&worker->lock);
	if (worker->last_news)
		worker->last_news->next = news;
	else
		worker->news = news;
	worker->last_news = news;
	pthread_mutex_unlock(&worker->lock);
	wake_owner(worker);
}

static void post_saved(struct ckptd_worker *worker, enum ckptd_news_type type, int64_t step, int slot,
	const struct ckpt_saved *saved)
{
	struct ckptd_news *news = make_news(type, step, slot);
	news->bytes = saved->bytes;
	news->seconds = saved->seconds;
	news->taken = saved->taken;
	post(worker, news);
}

static void post_failed(struct ckptd_worker *worker, int64_t step, int slot, const struct err *err)
{
	struct ckptd_news *news = make_news(NEWS_FAILED, step, slot);
	news->err = *err;
	post(worker, news);
}

static void post_decided(struct ckptd_worker *worker, int64_t step, bool committed)
{
	struct ckptd_news *news = make_news(NEWS_DECIDED, step, -1);
	news->taken = committed;
	post(worker, news);
}

/* Progress is not queued: only the last word counts. */
struct ckptd_news *ckptd_worker_news(struct ckptd_worker *worker)
{
	pthread_mutex_lock(&worker->lock);
	struct ckptd_news *news = worker->news;
	if (news) {
		worker->news = news->next;
		if (!worker->news)
			worker->last_news = NULL;
	} else if (worker->progressed && worker->jobs && (news = calloc(1, sizeof *news))) {
		*news = (struct ckptd_news){ .type = NEWS_PROGRESS, .step = worker->jobs->save.step, .slot = -1,
			.bytes = worker->done, .total = worker->total };
	}
	worker->progressed = false;
	pthread_mutex_unlock(&worker->lock);
	return news;
}

/* ---- writing ---- */

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
	wake_owner(worker);
	/* The trainer, whose heart beat until then, is gone: without it another job would take the directory over in mid-save. */
	if (alone && now >= worker->next_beat) {
		worker->next_beat = now + BEAT_SECONDS;
		owner_heartbeat(&worker->plan.dir, worker->plan.attach->token, NULL);
	}
}

static const struct snapshot *snapshot_of(struct ckptd_worker *worker, const struct ckptd_save *save)
{
	struct snapshot *snapshot = &worker->snapshots[save->slot];
	snapshot->step = save->step;
	snapshot->cursor = (uint64_t)save->cursor;
	snapshot->loss = save->loss;
	snapshot->validation_loss = save->validation_loss;
	return snapshot;
}

/* What a durable save makes superfluous goes. */
static void clean_up(struct ckptd_worker *worker, int64_t durable)
{
	struct err err;
	const char *token = worker->plan.attach->token;
	/* A disk on which a save or a removal failed may have refused to remove its files, too. Now it is good. */
	ckpt_dir_tidy(&worker->plan.dir, durable, token);
	if (ckpt_dir_retain(&worker->plan.dir, &worker->retention, token, &err) < 0)
		log_error("checkpoint: %s", err.text);
}

/* As long as the client lives it trains, or waits for this save and leaves the processors to it. */
static struct ckpt_save_options options_for(struct ckptd_worker *worker)
{
	pthread_mutex_lock(&worker->lock);
	bool spare = !worker->alone && !worker->ending && worker->plan.memory->bytes >= SPARE_LEAST;
	pthread_mutex_unlock(&worker->lock);
	return (struct ckpt_save_options){ .spare = spare ? SPARE_SECONDS : 0, .progress = on_progress, .arg = worker };
}

static void save_whole(struct ckptd_worker *worker, const struct ckptd_save *save)
{
	const struct ckpt_save_options options = options_for(worker);
	struct ckpt_saved saved;
	struct err err = { 0 };
	if (ckpt_save(&worker->plan.dir, snapshot_of(worker, save), worker->plan.attach->token, &options, &saved, &err) < 0) {
		post_failed(worker, save->step, (int)save->slot, &err);
		return;
	}
	post_saved(worker, NEWS_DURABLE, save->step, (int)save->slot, &saved);
	clean_up(worker, save->step);
}

/* The text of this part's file, durable; NULL on error. */
static char *write_part(struct ckptd_worker *worker, const struct ckptd_save *save, size_t *size, struct ckpt_saved *saved,
	struct err *err)
{
	const struct ckpt_save_options options = options_for(worker);
	const struct ckptd_attach *attach = worker->plan.attach;
	const struct ckpt_dir *dir = &worker->plan.dir;
	char *text = ckptd_already_part(dir, save->step, attach->token, (int)attach->part, (int)attach->parts, size);
	if (text)
		return text;
	if (save->slot < 0)
		err_fail(err, EXIT_LOST, "checkpoint: part %d of %d, which was written, is not there any more", (int)attach->part + 1,
			(int)attach->parts);
	else if (ckpt_save_part(dir, snapshot_of(worker, save), attach->token, &options, &text, size, saved, err) < 0)
		text = NULL;
	return text;
}

static void tell_own(struct ckptd_worker *worker, int64_t step, char *text, size_t size, const struct err *fault)
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
	return rc == 0 ? 0 : err_fail(err, EXIT_LOST, "checkpoint: too many saves wait for their parts, or no memory");
}

static void save_part(struct ckptd_worker *worker, const struct ckptd_save *save)
{
	struct ckpt_saved saved = { 0 };
	struct err err = { 0 };
	size_t size = 0;
	int slot = (int)save->slot;
	if (worker->left_over == save->step)
		worker->left_over = -1;
	if (worker->parts && begin_own(worker, save->step, &err) < 0) {
		post_failed(worker, save->step, slot, &err);
		return;
	}
	char *text = write_part(worker, save, &size, &saved, &err);
	if (!text)
		post_failed(worker, save->step, slot, &err);
	else if (worker->parts)
		post_saved(worker, NEWS_WRITTEN, save->step, slot, &saved);
	if (worker->parts) {
		tell_own(worker, save->step, text, size, &err);
	} else if (text) {
		struct ckptd_news *news = make_news(NEWS_PART, save->step, slot);
		news->bytes = saved.bytes;
		news->seconds = saved.seconds;
		news->text = text;
		news->size = size;
		post(worker, news);
	}
}

static void do_save(struct ckptd_worker *worker, const struct ckptd_save *save)
{
	const struct ckptd_attach *attach = worker->plan.attach;
	if (ckptd_already_committed(&worker->plan.dir, save->step, attach->token)) {
		const struct ckpt_saved saved = { .taken = true };
		post_saved(worker, attach->part == 0 ? NEWS_DURABLE : NEWS_WRITTEN, save->step, (int)save->slot, &saved);
		if (worker->parts)
			post_decided(worker, save->step, true);
	} else if (attach->parts == 1) {
		save_whole(worker, save);
	} else {
		save_part(worker, save);
	}
}

/* ---- deciding ---- */

static void discard(struct ckptd_worker *worker, int64_t step)
{
	struct err err;
	if (step >= 0 && ckpt_discard(&worker->plan.dir, step, worker->plan.attach->token, &err) < 0)
		log_warn("checkpoint: couldn't remove an unfinished save, and tries again behind the next: %s", err.text);
}

static int commit(struct ckptd_worker *worker, const struct ckptd_parts_step *save, struct err *err)
{
	const struct ckptd_attach *attach = worker->plan.attach;
	struct ckpt_saved saved;
	if (ckpt_commit(&worker->plan.dir, save->step, attach->token, (int)attach->parts, save->texts, save->sizes, &saved,
		err) < 0)
		return -1;
	saved.seconds = clock_now() - save->began;
	post_saved(worker, NEWS_DURABLE, save->step, -1, &saved);
	return 0;
}

/* Why a save whose parts are not all there has failed. */
static void explain(struct ckptd_worker *worker, enum ckptd_parts_verdict verdict, const struct ckptd_parts_step *save,
	struct err *err)
{
	char missing[100];
	ckptd_parts_missing(worker->parts, save, missing, sizeof missing);
	int parts = (int)worker->plan.attach->parts;
	if (save->fault.text[0])
		*err = save->fault;
	else if (verdict == PARTS_LATE)
		err_fail(err, EXIT_LOST, "checkpoint: no word came in time of part %s of %d", missing, parts);
	else
		err_fail(err, EXIT_LOST, "checkpoint: no word came of part %s of %d, and a later save is complete", missing, parts);
}

/* A save is over. Files of which word came late may be complete: they stay until a later save has its end. */
static void decide(struct ckptd_worker *worker, enum ckptd_parts_verdict verdict, struct ckptd_parts_step *save)
{
	struct err err = { 0 };
	bool committed = verdict == PARTS_COMPLETE && commit(worker, save, &err) == 0;
	if (!committed && verdict != PARTS_COMPLETE)
		explain(worker, verdict, save, &err);
	if (!committed && verdict != PARTS_LATE)
		discard(worker, save->step);
	if (!committed && save->own && !save->own_failed)
		post_failed(worker, save->step, -1, &err);
	post_decided(worker, save->step, committed);
	if (save->own) {
		discard(worker, worker->left_over == save->step ? -1 : worker->left_over);
		worker->left_over = verdict == PARTS_LATE ? save->step : -1;
	}
	if (committed)
		clean_up(worker, save->step);
}

/* With the lock held, which it gives up meanwhile. Returns false when no save is over. */
static bool decide_next(struct ckptd_worker *worker)
{
	struct ckptd_parts_step *save = NULL;
	enum ckptd_parts_verdict verdict = PARTS_WAIT;
	if (worker->parts)
		verdict = ckptd_parts_over(worker->parts, clock_now(), &save);
	if (verdict == PARTS_WAIT)
		return false;
	worker->deciding = true;
	pthread_mutex_unlock(&worker->lock);
	decide(worker, verdict, save);
	ckptd_parts_free(worker->parts, save);
	pthread_mutex_lock(&worker->lock);
	worker->deciding = false;
	return true;
}

/* ---- the thread ---- */

/* With the lock held, as above. */
static bool save_next(struct ckptd_worker *worker)
{
	struct job *job = worker->jobs;
	if (!job)
		return false;
	worker->working = true;
	worker->done = worker->total = 0;
	pthread_mutex_unlock(&worker->lock);
	worker->next_progress = clock_now() + PROGRESS_SECONDS;
	do_save(worker, &job->save);
	pthread_mutex_lock(&worker->lock);
	worker->working = worker->progressed = false;
	worker->jobs = job->next;
	free(job);
	return true;
}

/* With the lock held, as above, while there is nothing else to do: a first save may be one in a hurry, and the state is there
 * long before it. */
static bool map_next(struct ckptd_worker *worker)
{
	const struct snapshot_memory *memory = worker->plan.memory;
	if (worker->mapped_slot == memory->slots)
		return false;
	pthread_mutex_unlock(&worker->lock);
	worker->mapped = snapshot_memory_map_ahead(memory, worker->mapped_slot, worker->mapped);
	if (worker->mapped == memory->bytes) {
		worker->mapped_slot++;
		worker->mapped = 0;
	}
	pthread_mutex_lock(&worker->lock);
	return true;
}

static void wait_for_work(struct ckptd_worker *worker)
{
	double next = worker->parts ? ckptd_parts_next(worker->parts) : 0;
	struct timespec until = deadline_timespec((struct deadline){ next });
	if (next > 0)
		pthread_cond_timedwait(&worker->changed, &worker->lock, &until);
	else
		pthread_cond_wait(&worker->changed, &worker->lock);
}

static void *run(void *arg)
{
	struct ckptd_worker *worker = arg;
	/* A umask of its own for this thread and those that it starts: files get the modes that the client's would have. */
	if (unshare(CLONE_FS) == 0)
		umask((mode_t)worker->plan.attach->umask);
	pthread_mutex_lock(&worker->lock);
	while (!worker->ending || worker->jobs)
		if (!decide_next(worker) && !save_next(worker) && !map_next(worker)) {
			wake_owner(worker);
			if (!worker->ending)
				wait_for_work(worker);
		}
	pthread_mutex_unlock(&worker->lock);
	return NULL;
}

/* ---- the owner's side ---- */

static void release(struct ckptd_worker *worker)
{
	struct ckptd_news *news;
	while ((news = worker->news)) {
		worker->news = news->next;
		ckptd_news_free(news);
	}
	for (int i = 0; i < SNAPSHOT_SLOTS; i++)
		ckptd_attach_free(&worker->snapshots[i]);
	ckptd_parts_destroy(worker->parts);
	pthread_cond_destroy(&worker->changed);
	pthread_mutex_destroy(&worker->lock);
	free(worker);
}

static int fill(struct ckptd_worker *worker, struct err *err)
{
	const struct ckptd_attach *attach = worker->plan.attach;
	for (int i = 0; i < worker->plan.memory->slots; i++)
		if (ckptd_attach_snapshot(attach, worker->plan.memory->base[i], &worker->snapshots[i], err) < 0)
			return -1;
	if (attach->parts > 1 && attach->part == 0) {
		worker->parts = ckptd_parts_create((int)attach->parts, worker->plan.patience);
		if (!worker->parts)
			return err_set(err, "service: no memory");
	}
	int error = pthread_create(&worker->thread, NULL, run, worker);
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
	worker->retention = (struct retention){ .keep_last = (size_t)plan->attach->keep_last,
		.keep_every = plan->attach->keep_every, .keep_best = (size_t)plan->attach->keep_best };
	worker->left_over = -1;
	pthread_mutex_init(&worker->lock, NULL);
	deadline_condition(&worker->changed);
	if (fill(worker, err) == 0)
		return worker;
	release(worker);
	return NULL;
}

int ckptd_worker_save(struct ckptd_worker *worker, const struct ckptd_save *save)
{
	struct job *job = calloc(1, sizeof *job), **at;
	if (!job)
		return -1;
	job->save = *save;
	pthread_mutex_lock(&worker->lock);
	for (at = &worker->jobs; *at; at = &(*at)->next)
		;
	*at = job;
	pthread_cond_signal(&worker->changed);
	pthread_mutex_unlock(&worker->lock);
	return 0;
}

int ckptd_worker_tell(struct ckptd_worker *worker, int64_t step, int part, char *text, size_t size, const struct err *fault)
{
	pthread_mutex_lock(&worker->lock);
	int rc = ckptd_parts_tell(worker->parts, step, part, text, size, fault, clock_now());
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
	return worker->jobs || worker->deciding || save || worker->news;
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

void ckptd_worker_list(struct ckptd_worker *worker, void (*line)(void *arg, const char *text), void *arg)
{
	const char *path = worker->plan.attach->path;
	struct err text;
	char missing[100];
	pthread_mutex_lock(&worker->lock);
	for (const struct job *job = worker->jobs; job; job = job->next) {
		if (job == worker->jobs && worker->working)
			err_set(&text, "step %" PRId64 " of %s: %.2f of %.2f GB are written", job->save.step, path,
				(double)worker->done * 1e-9, (double)worker->total * 1e-9);
		else
			err_set(&text, "step %" PRId64 " of %s: it waits for the save before it", job->save.step, path);
		line(arg, text.text);
	}
	const struct ckptd_parts_step *save = worker->parts ? ckptd_parts_first(worker->parts) : NULL;
	for (; save; save = save->next)
		if (save->own) {
			err_set(&text, "step %" PRId64 " of %s: it waits for part %s of %d", save->step, path,
				ckptd_parts_missing(worker->parts, save, missing, sizeof missing), (int)worker->plan.attach->parts);
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
