/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint directory for a program's own arrays. checkpoint/attempt/folder.h holds the
 * directory; each save is copied to a buffer of shared memory, from which the checkpoint service
 * writes it. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/attempt/folder.h"
#include "checkpoint/client/ckptd_client.h"
#include "checkpoint/directory/owner.h"
#include "common/log.h"
#include "common/notice.h"
#include "launch/job_query.h"
#include "launch/requeue_ask.h"
#include "lib/muster_private.h"
#include "lib/plan.h"

#define START_SECONDS 30.0 /* to find or start a checkpoint service */
#define SLOTS 2            /* snapshot buffers: a save is copied while the one before is written */

/* A save that did not become durable. */
struct failure {
	struct failure *next;
	struct save_result result;
};

struct muster_ckpt {
	struct ident ident;
	struct folder *folder;
	struct plan plan;
	char *config_json;
	struct snapshot snapshot;
	struct snapshot_memory memory;
	struct ckptd_client *client;
	bool begun_here; /* the start is settled: something was loaded or saved */
	int64_t handed;  /* the last save handed over, whatever became of it; -1: none */

	pthread_mutex_t lock;     /* for the fields below */
	int64_t begun, durable;   /* the newest step of each; -1: none */
	struct failure *failures; /* of steps that were not saved again */
};

/* ---- start ---- */

/* This function and the next two need the lock. NULL: none. */
static struct failure *find_failure(struct muster_ckpt *ckpt, int64_t step)
{
	struct failure *failure = ckpt->failures;
	while (failure && failure->result.step != step)
		failure = failure->next;
	return failure;
}

/* Failures are kept here, since the client knows only the last few saves. */
static void add_failure(struct muster_ckpt *ckpt, const struct save_result *result)
{
	struct failure *failure = malloc(sizeof *failure);
	if (!failure)
		return;
	*failure = (struct failure) { .next = ckpt->failures, .result = *result };
	ckpt->failures = failure;
}

static void drop_failure(struct muster_ckpt *ckpt, int64_t step)
{
	struct failure **at = &ckpt->failures, *found = find_failure(ckpt, step);
	while (found && *at != found)
		at = &(*at)->next;
	if (found)
		*at = found->next;
	free(found);
}

static void take_result(void *arg, const struct save_result *result)
{
	struct muster_ckpt *ckpt = arg;
	pthread_mutex_lock(&ckpt->lock);
	if (result->outcome == SAVE_DURABLE)
		ckpt->durable = result->step;
	else if (result->outcome == SAVE_FAILED && ckpt->begun == result->step)
		ckpt->begun = ckpt->durable;
	if (result->outcome == SAVE_FAILED)
		add_failure(ckpt, result);
	pthread_mutex_unlock(&ckpt->lock);
	if (result->outcome == SAVE_FAILED)
		log_error("checkpoint: couldn't save step %" PRId64 ": %s", result->step, result->err.text);
	else if (result->outcome == SAVE_DURABLE)
		log_info("checkpoint: step %" PRId64 " is durable: %.1f MB in %.2f s", result->step,
			(double)result->bytes * 1e-6, result->seconds);
}

static void tell_lost(void *arg, const char *text)
{
	(void)arg;
	log_warn("checkpoint: %s", text);
}

static int make_memory(struct muster_ckpt *ckpt, struct err *err)
{
	size_t available = snapshot_memory_available();
	int buffers = available && available < SLOTS * ckpt->plan.bytes ? 1 : SLOTS;
	if (buffers == 1)
		log_warn("checkpoint: only one snapshot of %.0f MB is kept in memory, since %.0f MB are "
				 "left: a save waits for the one before",
			(double)ckpt->plan.bytes * 1e-6, (double)available * 1e-6);
	if (snapshot_memory_create(&ckpt->memory, buffers, ckpt->plan.bytes ? ckpt->plan.bytes : 1, err)
		< 0)
		return -1;
	plan_set_base(&ckpt->plan, ckpt->memory.base[0]);
	return 0;
}

static int describe_run(struct muster_ckpt *ckpt, struct err *err)
{
	json_t *config = json_pack("{s:{s:s}, s:{}, s:{}}", "identity", "program",
		program_invocation_short_name, "schedule", "operation");
	ckpt->config_json = config ? json_dumps(config, JSON_INDENT(2)) : NULL;
	json_decref(config);
	if (!ckpt->config_json)
		return err_set(err,
			"checkpoint: couldn't describe this program: its name is not UTF-8, or no memory");
	ckpt->snapshot = (struct snapshot) { .attempt = ckpt->ident.attempt,
		.world_size = ckpt->ident.world_size,
		.config_json = ckpt->config_json,
		.numerics_json = "{}",
		.model_json = "{}\n",
		.tensors = ckpt->plan.tensors,
		.tensor_count = ckpt->plan.count,
		.parts = 1 };
	return 0;
}

static int open_stages(struct muster_ckpt *ckpt, const char *path, struct err *err)
{
	if (make_memory(ckpt, err) < 0 || describe_run(ckpt, err) < 0)
		return -1;
	const struct folder_job job = { &ckpt->ident, job_end_time(ckpt->ident.job), job_is_running };
	ckpt->folder = folder_open(path, &job, false, ckpt->plan.timeout, err);
	if (!ckpt->folder)
		return -1;
	const struct ckptd_plan service = { .dir = folder_dir(ckpt->folder),
		.token = folder_token(ckpt->folder),
		.memory = &ckpt->memory,
		.snapshot = &ckpt->snapshot,
		.retention = ckpt->plan.retention,
		.timeout = START_SECONDS,
		.ended = take_result,
		.lost = tell_lost,
		.arg = ckpt };
	ckpt->client = ckptd_client_open(&service, err);
	return ckpt->client ? 0 : -1;
}

static void release(struct muster_ckpt *ckpt)
{
	ckptd_client_close(ckpt->client, 0);
	folder_close(ckpt->folder, true);
	snapshot_memory_release(&ckpt->memory);
	plan_release(&ckpt->plan);
	free(ckpt->config_json);
	while (ckpt->failures)
		drop_failure(ckpt, ckpt->failures->result.step);
	pthread_mutex_destroy(&ckpt->lock);
	free(ckpt);
}

int muster_ckpt_open(struct muster *muster, const struct muster_ckpt_plan *given,
	struct muster_ckpt **out)
{
	struct err err;
	struct plan plan;
	if (muster_check_given(out, "the place for the struct muster_ckpt", &err) < 0)
		return muster_failed(&err);
	*out = NULL;
	if (muster_check(muster, 0, &err) < 0 || plan_open(&plan, given, &err) < 0)
		return muster_failed(&err);
	struct muster_ckpt *ckpt = calloc(1, sizeof *ckpt);
	if (!ckpt) {
		plan_release(&plan);
		err_set(&err, "checkpoint: out of memory");
		return muster_failed(&err);
	}
	*ckpt = (struct muster_ckpt) { .ident = muster->ident,
		.plan = plan,
		.begun = -1,
		.durable = -1,
		.handed = -1 };
	pthread_mutex_init(&ckpt->lock, NULL);
	if (open_stages(ckpt, given->dir, &err) < 0) {
		release(ckpt);
		return muster_failed(&err);
	}
	*out = ckpt;
	return MUSTER_OK;
}

/* ---- load ---- */

/* Tries checkpoints from the newest to older ones until one is intact. 0 with *step; -1: an error
 * other than damage. */
static int load(struct muster_ckpt *ckpt, int64_t *step, struct err *err)
{
	struct ckpt *from;
	while ((from = folder_checkpoint(ckpt->folder))) {
		int rc = plan_load(&ckpt->plan, from, err);
		if (rc != CKPT_DAMAGED) {
			*step = ckpt_manifest(from)->step;
			return rc;
		}
		struct err why = *err;
		if (folder_refuse_checkpoint(ckpt->folder, why.text, err) < 0)
			return -1;
	}
	*step = -1;
	return 0;
}

int muster_ckpt_load(struct muster_ckpt *ckpt, int64_t *step)
{
	struct err err;
	if (muster_check_given(step, "the place for the step", &err) < 0)
		return muster_failed(&err);
	*step = -1;
	if (!ckpt)
		return MUSTER_OK;
	if (ckpt->begun_here) {
		err_fail(&err, EXIT_USAGE,
			"resume: couldn't load: this attempt has loaded or saved already");
		return muster_failed(&err);
	}
	int rc = load(ckpt, step, &err);
	folder_drop_checkpoint(ckpt->folder);
	if (rc < 0)
		return muster_failed(&err);
	ckpt->begun_here = true;
	pthread_mutex_lock(&ckpt->lock);
	ckpt->begun = ckpt->durable = *step;
	pthread_mutex_unlock(&ckpt->lock);
	return MUSTER_OK;
}

/* ---- save ---- */

/* The newest durable step, or with `begun` the newest step that was begun. */
static int64_t newest(struct muster_ckpt *ckpt, bool begun)
{
	pthread_mutex_lock(&ckpt->lock);
	int64_t step = begun ? ckpt->begun : ckpt->durable;
	pthread_mutex_unlock(&ckpt->lock);
	return step;
}

static void set_begun(struct muster_ckpt *ckpt, int64_t step)
{
	pthread_mutex_lock(&ckpt->lock);
	ckpt->begun = step;
	drop_failure(ckpt, step);
	pthread_mutex_unlock(&ckpt->lock);
}

/* Whether the save of the step failed; if so, *err says why. */
static bool has_failed(struct muster_ckpt *ckpt, int64_t step, struct err *err)
{
	pthread_mutex_lock(&ckpt->lock);
	const struct failure *failure = find_failure(ckpt, step);
	if (failure)
		*err = failure->result.err;
	pthread_mutex_unlock(&ckpt->lock);
	return failure;
}

/* The folder's own thread looks only a few times a second: without this, a program that stops at
 * once would leave no record of the reason. */
static void record_notice(struct muster_ckpt *ckpt)
{
	struct err err;
	if (notice_signal() && folder_notice(ckpt->folder, notice_signal(), &err) < 0)
		log_warn("checkpoint: couldn't record the notice: %s", err.text);
}

static int save(struct muster_ckpt *ckpt, int64_t step, double loss, struct err *err)
{
	int64_t before = newest(ckpt, true);
	record_notice(ckpt);
	int buffer = ckptd_client_buffer(ckpt->client, -1, ckpt->plan.timeout);
	if (buffer < 0)
		return err_fail(err, EXIT_LOST,
			"checkpoint: couldn't save step %" PRId64 ": the save of step %" PRId64
			" still runs after %g s: save less often, or on faster storage",
			step, before, ckpt->plan.timeout);
	plan_copy(&ckpt->plan, ckpt->memory.base[buffer]);
	struct snapshot snapshot = ckpt->snapshot;
	snapshot.at = (struct save_step) { .step = step,
		.cursor = (uint64_t)step,
		.loss = loss,
		.validation_loss = NAN };
	/* Before the call, since the save may end at once. */
	set_begun(ckpt, step);
	if (ckptd_client_save(ckpt->client, buffer, &snapshot, err) == 0) {
		ckpt->handed = step;
		return 0;
	}
	set_begun(ckpt, newest(ckpt, false));
	return -1;
}

/* Whether a save of that step makes sense. A run that saved over another run's checkpoints could
 * never resume from its own. */
static int check_save(struct muster_ckpt *ckpt, int64_t step, struct err *err)
{
	const struct ckpt *there = ckpt->begun_here ? NULL : folder_checkpoint(ckpt->folder);
	const char *path = folder_dir(ckpt->folder)->path;
	if (step < 0)
		return err_fail(err, EXIT_USAGE,
			"checkpoint: couldn't save step %" PRId64 ": steps count from 0", step);
	if (there)
		return err_fail(err, EXIT_USAGE,
			"checkpoint: couldn't save step %" PRId64 ": %s holds step %" PRId64
			" already: load that first, or use a directory of its own",
			step, path, ckpt_manifest(there)->step);
	if (folder_lost(ckpt->folder))
		return err_set(err,
			"checkpoint: couldn't save step %" PRId64 ": another attempt owns %s now", step, path);
	return 0;
}

int muster_ckpt_save(struct muster_ckpt *ckpt, int64_t step, double loss)
{
	struct err err;
	if (!ckpt)
		return MUSTER_OK;
	if (check_save(ckpt, step, &err) < 0)
		return muster_failed(&err);
	ckpt->begun_here = true;
	folder_progress(ckpt->folder, (uint64_t)step);
	if (step > newest(ckpt, true) && save(ckpt, step, loss, &err) < 0)
		return muster_failed(&err);
	return MUSTER_OK;
}

int muster_ckpt_wait(struct muster_ckpt *ckpt, int64_t step, double timeout)
{
	struct err err;
	if (!ckpt)
		return MUSTER_OK;
	if (muster_check_timeout(timeout, &err) < 0)
		return muster_failed(&err);
	if (!has_failed(ckpt, step, &err)
		&& (step <= newest(ckpt, false)
			|| ckptd_client_wait(ckpt->client, step, muster_or(timeout, ckpt->plan.timeout), &err)
				== 0))
		return MUSTER_OK;
	return muster_failed(&err);
}

static bool has_other_owner(const struct muster_ckpt *ckpt)
{
	struct err err;
	return owner_verify(folder_dir(ckpt->folder), folder_token(ckpt->folder), &err) < 0
		&& err.status == EXIT_FAULT;
}

/* As in muster-train: whatever prevents the last save, the next attempt may succeed, unless another
 * attempt owns the directory. */
int muster_ckpt_drain(struct muster_ckpt *ckpt, double timeout)
{
	if (!ckpt)
		return MUSTER_OK;
	record_notice(ckpt);
	int rc = ckpt->handed >= 0 ? muster_ckpt_wait(ckpt, ckpt->handed, timeout) : MUSTER_OK;
	return rc == MUSTER_FAULT && !has_other_owner(ckpt) ? MUSTER_LOST : rc;
}

int muster_ckpt_leave(struct muster_ckpt *ckpt, int status, const char *why, struct err *err)
{
	if (!ckpt)
		return 0;
	record_notice(ckpt);
	int64_t last = newest(ckpt, false);
	int rc = folder_end(ckpt->folder, last > 0 ? (uint64_t)last : 0, why, status, err);
	release(ckpt);
	return rc;
}

int muster_ckpt_close(struct muster_ckpt *ckpt, int status, const char *why)
{
	struct err err;
	if (!ckpt)
		return MUSTER_OK;
	const struct ident ident = ckpt->ident;
	int rc = muster_ckpt_drain(ckpt, 0);
	if (muster_ckpt_leave(ckpt, status, why, &err) < 0 && rc == MUSTER_OK)
		rc = muster_failed(&err);
	if (status == MUSTER_REQUEUE || status == MUSTER_LOST)
		requeue_ask(&ident);
	return rc;
}
