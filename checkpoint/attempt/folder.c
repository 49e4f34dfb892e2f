/* SPDX-License-Identifier: Apache-2.0 */
/* Rank 0 opens, claims and closes the checkpoint directory around an attempt. In between, a thread
 * keeps the heartbeat and records notices, since the main thread may be busy for longer than either
 * may wait. */
#include "config.h"

#include "checkpoint/attempt/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/attempt/machine.h"
#include "checkpoint/directory/attempts.h"
#include "checkpoint/directory/save_schedule.h"
#include "checkpoint/directory/remove.h"
#include "checkpoint/save/ckpt_save.h"
#include "common/auto.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/notice.h"
#include "common/thread.h"

#define HEARTBEAT_SECONDS (OWNER_HEARTBEAT / 4)
#define CLAIM_SECONDS 30.0
#define WATCH_SECONDS 0.2
#define SAVES 4           /* of which the longest is expected again */
#define REPLY_SECONDS 6.0 /* in which the controller has told a job's limit once more */

struct folder {
	struct ckpt_dir dir;
	struct owner owner;
	struct ident ident;
	struct folder_job job;
	struct ckpt *checkpoint;
	int attempt;
	struct attempts_record *records; /* read at the start, with this attempt's start appended */
	size_t record_count;
	double timeout; /* seconds that an I/O error is retried */
	int64_t began;  /* the step resumed from; -1: a fresh start */
	bool opened, owned, watching;

	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool ending, lost, noticed, noting;
	int64_t step;                 /* the last step done, for the record of a notice */
	double stepped, step_seconds; /* when it was done, and how long it took */
	struct deadline limit; /* when Slurm ends the job; the system's time may be set meanwhile */
	double recent[SAVES];  /* how long the last saves took; 0: fewer */
	unsigned saves;
};

/* Asks Slurm whether the job that owns the directory still runs. */
static enum owner_life ask_slurm(void *arg, const struct owner *other)
{
	const struct folder *folder = arg;
	struct err err;
	if (!folder->job.is_running || !other->job
		|| strcmp(other->cluster, folder->ident.cluster) != 0)
		return OWNER_UNKNOWN;
	int runs = folder->job.is_running(other->job, &err);
	/* Without an answer now, the owner's own word counts; without a helper there will be none. */
	if (runs < 0 && err.status == EXIT_USAGE)
		log_warn("checkpoint directory: %s", err.text);
	else if (runs < 0)
		log_debug("checkpoint directory: %s", err.text);
	return runs < 0 ? OWNER_UNKNOWN : runs ? OWNER_RUNS : OWNER_ENDED;
}

static bool holds(const struct folder *folder, const char *name)
{
	struct stat st;
	return fstatat(folder->dir.fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

/* --fresh wants a directory without a run, but an earlier attempt of this same job doesn't count as
 * another run. */
static int check_fresh(const struct folder *folder, struct err *err)
{
	struct owner owner;
	size_t count;
	AUTO_FREE int64_t *steps = NULL;
	int rc = owner_read(&folder->dir, &owner, err);
	if (rc < 0 || ckpt_dir_steps(&folder->dir, &steps, &count, err) < 0)
		return -1;
	bool same = rc && owner.job && owner.job == folder->ident.job
		&& strcmp(owner.cluster, folder->ident.cluster) == 0;
	if (!same && (rc || count || holds(folder, ATTEMPTS_NAME)))
		return err_fail(err, EXIT_USAGE,
			"checkpoint directory: --fresh, but %s holds a run already: give a new --ckpt-dir, or "
			"leave --fresh out to resume",
			folder->dir.path);
	return 0;
}

/* Commits the saves that the previous attempt completed, before it removes those left
 * unfinished. */
static int claim(struct folder *folder, struct err *err)
{
	struct owner *owner = &folder->owner;
	snprintf(owner->cluster, sizeof owner->cluster, "%s", folder->ident.cluster);
	owner->job = folder->ident.job;
	owner->attempt = folder->ident.attempt;
	owner->restart = folder->ident.restart;
	if (owner_claim(&folder->dir, owner, ask_slurm, folder, CLAIM_SECONDS, err) < 0)
		return -1;
	folder->owned = true;
	if (ckpt_finish(&folder->dir, owner->token, folder->timeout, err) < 0)
		return -1;
	return remove_leftovers(&folder->dir, owner->token, err) < 0 ? -1 : 0;
}

/* Counts the attempts so far; fails if the last ones form a crash loop. */
static int look_back(struct folder *folder, struct err *err)
{
	AUTO_FREE int64_t *steps = NULL;
	size_t step_count;
	if (attempts_read(&folder->dir, &folder->records, &folder->record_count, err) < 0
		|| ckpt_dir_steps(&folder->dir, &steps, &step_count, err) < 0)
		return -1;
	for (size_t i = 0; i < folder->record_count; i++)
		folder->attempt += folder->records[i].event == ATTEMPTS_START;
	int64_t newest = step_count ? steps[step_count - 1] : -1;
	const struct attempts_asker asker = { folder->ident.cluster, folder->ident.job,
		folder->ident.attempt, folder->ident.restart };
	int vain = attempts_without_progress(folder->records, folder->record_count, &asker, newest);
	if (vain < ATTEMPTS_CRASH_LOOP)
		return 0;
	char step[40] = "none";
	if (newest >= 0)
		snprintf(step, sizeof step, "step %lld", (long long)newest);
	return err_set(err,
		"crash loop: the last %d attempts of job %u brought no newer checkpoint (the newest is %s) "
		"and none was cut short by a notice: look for their errors above, mend them, and start the "
		"training again",
		vain, folder->ident.job, step);
}

static const char *node_list(const struct ident *ident)
{
	const char *list = getenv("SLURM_STEP_NODELIST");
	if (!list)
		list = getenv("SLURM_JOB_NODELIST");
	return list ? list : ident->node;
}

static int append(struct folder *folder, struct attempts_record *record, struct err *err)
{
	snprintf(record->cluster, sizeof record->cluster, "%s", folder->ident.cluster);
	record->job = folder->ident.job;
	record->attempt = folder->ident.attempt;
	record->restart = folder->ident.restart;
	return attempts_append(&folder->dir, record, err);
}

/* folder_mean_time_between needs the start among the records. */
static int remember(struct folder *folder, struct attempts_record *start, struct err *err)
{
	struct attempts_record *more =
		realloc(folder->records, (folder->record_count + 1) * sizeof *more);
	if (!more)
		return err_set(err, "checkpoint directory: out of memory");
	start->time = clock_wall();
	folder->records = more;
	more[folder->record_count++] = *start;
	return 0;
}

static void note_beginning(struct folder *folder)
{
	folder->began = folder->checkpoint ? ckpt_manifest(folder->checkpoint)->step : -1;
	folder_progress(folder, folder->began > 0 ? (uint64_t)folder->began : 0);
}

/* Appended before the state is read, so that an attempt which dies while reading is counted. */
static int append_start(struct folder *folder, struct err *err)
{
	note_beginning(folder);
	struct attempts_record record = { .event = ATTEMPTS_START,
		.world_size = folder->ident.world_size,
		.step = folder->began,
		.limit = folder->job.ends,
		/* a restart has not come through Slurm's queue */
		.submitted = folder->ident.restart ? 0 : folder->job.submitted,
		.started = folder->ident.restart ? 0 : folder->job.started,
		.steps = folder->job.steps };
	snprintf(record.nodes, sizeof record.nodes, "%s", node_list(&folder->ident));
	const char *left_out = getenv(IDENT_LEFT_OUT);
	snprintf(record.left_out, sizeof record.left_out, "%s", left_out ? left_out : "");
	snprintf(record.version, sizeof record.version, "%s", PACKAGE_VERSION);
	machine_text(record.machine);
	return append(folder, &record, err) < 0 ? -1 : remember(folder, &record, err);
}

/* Called with the lock held; releases it while it writes to the disk. A notice is recorded once; a
 * second caller waits until it is durable. */
static int note(struct folder *folder, int signal, struct err *err)
{
	struct attempts_record record = { .event = ATTEMPTS_NOTICE, .step = folder->step };
	while (folder->noting)
		pthread_cond_wait(&folder->changed, &folder->lock);
	if (folder->noticed)
		return 0;
	folder->noticed = folder->noting = true;
	snprintf(record.why, sizeof record.why, "%s", notice_name(signal));
	pthread_mutex_unlock(&folder->lock);
	int rc = append(folder, &record, err);
	pthread_mutex_lock(&folder->lock);
	folder->noting = false;
	pthread_cond_broadcast(&folder->changed);
	return rc;
}

static void beat_once(struct folder *folder)
{
	struct err err;
	pthread_mutex_unlock(&folder->lock);
	bool lost =
		owner_heartbeat(&folder->dir, folder->owner.token, &err) < 0 && err.status == EXIT_FAULT;
	if (lost)
		log_error("checkpoint directory: %s", err.text);
	pthread_mutex_lock(&folder->lock);
	folder->lost = lost;
}

static void set_limit(struct folder *folder, double ends)
{
	folder->limit = deadline_in(ends > 0 ? ends - clock_wall() : INFINITY);
}

/* The longest of the last saves; 0: there was none. One that stalled once is forgotten. */
static double save_seconds(const struct folder *folder)
{
	double longest = 0;
	for (int i = 0; i < SAVES; i++)
		longest = fmax(longest, folder->recent[i]);
	return longest;
}

/* A step may have to end first. */
static bool limit_is_near(const struct folder *folder)
{
	double save = save_seconds(folder);
	return save > 0
		&& deadline_left(folder->limit) < 2 * save + folder->step_seconds + REPLY_SECONDS;
}

/* Called with the lock held, which it releases while it asks Slurm: the limit may have changed. */
static void watch_limit(struct folder *folder)
{
	if (notice_signal() || !limit_is_near(folder))
		return;
	pthread_mutex_unlock(&folder->lock);
	double ends = folder->job.ends_now ? folder->job.ends_now(folder->ident.job) : 0;
	pthread_mutex_lock(&folder->lock);
	if (ends > 0)
		set_limit(folder, ends);
	if (!limit_is_near(folder))
		return;
	log_warn("time limit: Slurm ends the job in %.0f s, and a save takes up to %.1f s until it is "
			 "durable: the run stops after this step, saves and asks to come back",
		deadline_left(folder->limit), save_seconds(folder));
	notice_record(NOTICE_TIME_LIMIT);
}

/* Runs until the folder is closed or has another owner. Writes the heartbeat; one that can't be
 * written is tried again when the next is due. Records a notice as soon as it comes, since what the
 * main thread is doing may outlast the grace time. */
static void *watch(void *arg)
{
	struct folder *folder = arg;
	struct deadline next = deadline_in(HEARTBEAT_SECONDS);
	pthread_mutex_lock(&folder->lock);
	while (!folder->ending && !folder->lost) {
		struct err err;
		struct timespec until = deadline_timespec(deadline_in(WATCH_SECONDS));
		pthread_cond_timedwait(&folder->changed, &folder->lock, &until);
		watch_limit(folder);
		if (notice_signal() && !folder->ending && note(folder, notice_signal(), &err) < 0)
			log_warn("checkpoint directory: couldn't record the notice: %s", err.text);
		if (!folder->ending && deadline_passed(next)) {
			beat_once(folder);
			next = deadline_in(HEARTBEAT_SECONDS);
		}
	}
	pthread_mutex_unlock(&folder->lock);
	return NULL;
}

static int start_watch(struct folder *folder, struct err *err)
{
	pthread_mutex_init(&folder->lock, NULL);
	deadline_condition(&folder->changed);
	int error = thread_start(&folder->thread, watch, folder);
	if (error)
		return err_set(err, "checkpoint directory: couldn't start its thread: %s", strerror(error));
	folder->watching = true;
	return 0;
}

static int open_stages(struct folder *folder, const char *path, bool fresh, struct err *err)
{
	if (ckpt_dir_open(&folder->dir, path, err) < 0)
		return -1;
	folder->opened = true;
	if (fresh && check_fresh(folder, err) < 0)
		return -1;
	if (claim(folder, err) < 0 || start_watch(folder, err) < 0 || look_back(folder, err) < 0)
		return -1;
	if (ckpt_open_below(&folder->dir, INT64_MAX, folder->timeout, &folder->checkpoint, err) < 0)
		return -1;
	return append_start(folder, err);
}

struct folder *folder_open(const char *path, const struct folder_job *job, bool fresh,
	double timeout, struct err *err)
{
	struct folder *folder = calloc(1, sizeof *folder);
	if (!folder) {
		err_set(err, "checkpoint directory: out of memory");
		return NULL;
	}
	*folder = (struct folder) { .ident = *job->ident, .job = *job, .timeout = timeout };
	folder->job.ident = &folder->ident; /* the caller's may go */
	set_limit(folder, job->ends);
	if (open_stages(folder, path, fresh, err) < 0) {
		folder_close(folder, true);
		return NULL;
	}
	return folder;
}

const struct ckpt_dir *folder_dir(const struct folder *folder)
{
	return &folder->dir;
}

const char *folder_token(const struct folder *folder)
{
	return folder->owner.token;
}

int folder_attempt(const struct folder *folder)
{
	return folder->attempt;
}

struct ckpt *folder_checkpoint(struct folder *folder)
{
	return folder->checkpoint;
}

int folder_refuse_checkpoint(struct folder *folder, const char *why, struct err *err)
{
	int64_t step = ckpt_manifest(folder->checkpoint)->step;
	folder_drop_checkpoint(folder);
	if (ckpt_dir_set_aside(&folder->dir, step, why, err) < 0)
		return -1;
	int found = ckpt_open_below(&folder->dir, step, folder->timeout, &folder->checkpoint, err);
	if (found >= 0)
		note_beginning(folder);
	return found;
}

void folder_drop_checkpoint(struct folder *folder)
{
	if (folder->checkpoint)
		ckpt_close(folder->checkpoint);
	folder->checkpoint = NULL;
}

double folder_mean_time_between(const struct folder *folder)
{
	return save_schedule_mean_time_between(folder->records, folder->record_count, clock_wall());
}

void folder_progress(struct folder *folder, uint64_t step)
{
	double now = clock_now();
	pthread_mutex_lock(&folder->lock);
	folder->step = (int64_t)step;
	folder->step_seconds = folder->stepped > 0 ? now - folder->stepped : 0;
	folder->stepped = now;
	pthread_mutex_unlock(&folder->lock);
}

void folder_saved(struct folder *folder, double seconds)
{
	pthread_mutex_lock(&folder->lock);
	folder->recent[folder->saves++ % SAVES] = seconds;
	pthread_mutex_unlock(&folder->lock);
}

int folder_notice(struct folder *folder, int signal, struct err *err)
{
	pthread_mutex_lock(&folder->lock);
	int rc = note(folder, signal, err);
	pthread_mutex_unlock(&folder->lock);
	return rc;
}

int folder_end(struct folder *folder, uint64_t step, const char *why, int status, struct err *err)
{
	int64_t last = step ? (int64_t)step : folder->began;
	struct attempts_record record = { .event = ATTEMPTS_END, .step = last, .status = status };
	snprintf(record.why, sizeof record.why, "%s", why);
	return append(folder, &record, err);
}

bool folder_lost(struct folder *folder)
{
	pthread_mutex_lock(&folder->lock);
	bool lost = folder->lost;
	pthread_mutex_unlock(&folder->lock);
	return lost;
}

void folder_close(struct folder *folder, bool orderly)
{
	struct err err;
	if (!folder)
		return;
	if (folder->watching) {
		pthread_mutex_lock(&folder->lock);
		folder->ending = true;
		pthread_cond_broadcast(&folder->changed);
		pthread_mutex_unlock(&folder->lock);
		pthread_join(folder->thread, NULL);
		pthread_cond_destroy(&folder->changed);
		pthread_mutex_destroy(&folder->lock);
	}
	folder_drop_checkpoint(folder);
	if (folder->owned && orderly && owner_release(&folder->dir, folder->owner.token, &err) < 0)
		log_warn("checkpoint directory: %s", err.text);
	if (folder->opened)
		ckpt_dir_close(&folder->dir);
	free(folder->records);
	free(folder);
}
