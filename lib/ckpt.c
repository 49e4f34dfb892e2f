/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint directory for a program's own arrays. checkpoint/attempt/folder.h holds the
 * directory; each save is copied to a buffer of shared memory, from which the checkpoint service
 * writes it. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "checkpoint/attempt/folder.h"
#include "checkpoint/client/ckptd_client.h"
#include "checkpoint/directory/owner.h"
#include "common/log.h"
#include "common/notice.h"
#include "launch/job_query.h"
#include "launch/requeue_ask.h"
#include "lib/content.h"
#include "lib/muster_private.h"
#include "lib/outcomes.h"
#include "lib/plan.h"
#include "lib/saved.h"

#define START_SECONDS 30.0 /* to find or start a checkpoint service */
#define SLOTS 2            /* snapshot buffers: a save is copied while the one before is written */

struct muster_ckpt {
	struct muster *muster; /* outlives this */
	struct ident ident;
	struct folder *folder;
	struct plan plan;
	char *config_json;
	struct snapshot snapshot;
	struct snapshot_memory memory;
	struct content contents[SLOTS]; /* of the save that has the buffer, or had it last */
	size_t used[SLOTS];             /* bytes of each buffer that were ever written */
	struct ckptd_client *client;
	bool begun_here; /* the start is settled: something was loaded or saved */
	int64_t handed;  /* the last save handed over, whatever became of it; -1: none */
	struct outcomes outcomes;
};

/* ---- start ---- */

static void take_result(void *arg, const struct save_result *result)
{
	struct muster_ckpt *ckpt = arg;
	outcomes_take(&ckpt->outcomes, result);
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

/* The bytes of a buffer, and whether memory is short of two. The pages of a buffer cost memory once
 * something is copied there: where only the saves will tell how large they are, it has room for as
 * much as the machine. */
static size_t buffer_bytes(const struct muster_ckpt *ckpt, bool *is_short)
{
	const size_t bytes = ckpt->plan.arrays.bytes, available = snapshot_memory_available();
	*is_short = available && available < SLOTS * bytes;
	if (*is_short)
		log_warn("checkpoint: only one snapshot of %.0f MB is kept in memory, since %.0f MB are "
				 "left: a save waits for the one before",
			(double)bytes * 1e-6, (double)available * 1e-6);
	if (ckpt->plan.arrays.count > 0)
		return bytes ? bytes : 1;
	return (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
}

static int make_memory(struct muster_ckpt *ckpt, struct err *err)
{
	bool is_short;
	const size_t bytes = buffer_bytes(ckpt, &is_short);
	if (snapshot_memory_create(&ckpt->memory, is_short ? 1 : SLOTS, bytes, err) < 0)
		return -1;
	/* A process that the program forks would keep the memory if it outlived this one. */
	for (int i = 0; i < ckpt->memory.buffers; i++)
		madvise(ckpt->memory.base[i], ckpt->memory.bytes, MADV_DONTFORK);
	arrays_set_base(&ckpt->plan.arrays, ckpt->memory.base[0]);
	return 0;
}

static int describe_run(struct muster_ckpt *ckpt, struct err *err)
{
	json_t *identity = ckpt->plan.identity
		? json_incref(ckpt->plan.identity)
		: json_pack("{s:s}", "program", program_invocation_short_name);
	json_t *config = json_pack("{s:o, s:{}, s:{}}", "identity", identity, "schedule", "operation");
	ckpt->config_json = config ? json_dumps(config, JSON_INDENT(2)) : NULL;
	json_decref(config);
	if (!ckpt->config_json)
		return err_set(err,
			"checkpoint: couldn't describe this program: its name is not UTF-8, or no memory");
	ckpt->snapshot = (struct snapshot) { .attempt = ckpt->ident.attempt,
		.world_size = ckpt->ident.world_size,
		.config_json = ckpt->config_json,
		.numerics_json = "{}",
		.model_json = ckpt->plan.arrays.count > 0 ? "{}\n" : NULL,
		.tensors = ckpt->plan.arrays.tensors,
		.tensor_count = ckpt->plan.arrays.count,
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
	for (int i = 0; i < SLOTS; i++)
		content_release(&ckpt->contents[i]);
	outcomes_close(&ckpt->outcomes);
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
	*ckpt = (struct muster_ckpt) { .muster = muster,
		.ident = muster->ident,
		.plan = plan,
		.handed = -1 };
	outcomes_open(&ckpt->outcomes);
	if (open_stages(ckpt, given->dir, &err) < 0) {
		release(ckpt);
		return muster_failed(&err);
	}
	flight_files_begin(folder_dir(ckpt->folder)->fd);
	muster_keep_flight(muster, given->dir);
	*out = ckpt;
	return MUSTER_OK;
}

/* ---- load ---- */

/* Whether the plan is one for saves of states, or one of tensors, as the call needs. */
static int check_kind(const struct muster_ckpt *ckpt, bool states, struct err *err)
{
	if (states == (ckpt->plan.arrays.count == 0))
		return 0;
	return states ? err_fail(err, EXIT_USAGE,
			   "checkpoint: couldn't use a state: the plan has tensors, which muster_ckpt_load and "
			   "muster_ckpt_save take")
				  : err_fail(err, EXIT_USAGE,
					  "checkpoint: the plan has no tensors: use muster_ckpt_load_state and "
					  "muster_ckpt_save_state");
}

/* Uses the checkpoint. 0, CKPT_DAMAGED, or -1. */
typedef int use_checkpoint(struct muster_ckpt *ckpt, struct ckpt *from, void *arg, struct err *err);

/* Tries checkpoints from the newest to older ones until one is intact. 0 with *step, -1: there is
 * none; -1: an error other than damage. */
static int find_intact(struct muster_ckpt *ckpt, use_checkpoint *use, void *arg, int64_t *step,
	struct err *err)
{
	struct ckpt *from;
	while ((from = folder_checkpoint(ckpt->folder))) {
		*step = ckpt_manifest(from)->step;
		int rc = plan_check_identity(&ckpt->plan, ckpt_manifest(from), err);
		if (rc == 0)
			rc = use(ckpt, from, arg, err);
		if (rc != CKPT_DAMAGED)
			return rc;
		struct err why = *err;
		if (folder_refuse_checkpoint(ckpt->folder, why.text, err) < 0)
			return -1;
	}
	*step = -1;
	return 0;
}

/* The common part of the two calls that load; `step` -1 on an error. */
static int load(struct muster_ckpt *ckpt, use_checkpoint *use, void *arg, int64_t *step)
{
	struct err err;
	*step = -1;
	if (ckpt->begun_here) {
		err_fail(&err, EXIT_USAGE,
			"resume: couldn't load: this attempt has loaded or saved already");
		return muster_failed(&err);
	}
	int rc = find_intact(ckpt, use, arg, step, &err);
	folder_drop_checkpoint(ckpt->folder);
	if (rc < 0) {
		*step = -1;
		return muster_failed(&err);
	}
	ckpt->begun_here = true;
	outcomes_load(&ckpt->outcomes, *step);
	return MUSTER_OK;
}

static int fill_arrays(struct muster_ckpt *ckpt, struct ckpt *from, void *arg, struct err *err)
{
	(void)arg;
	return arrays_load(&ckpt->plan.arrays, from, err);
}

int muster_ckpt_load(struct muster_ckpt *ckpt, int64_t *step)
{
	struct err err;
	if (muster_check_given(step, "the place for the step", &err) < 0)
		return muster_failed(&err);
	*step = -1;
	if (!ckpt)
		return MUSTER_OK;
	if (check_kind(ckpt, false, &err) < 0)
		return muster_failed(&err);
	return load(ckpt, fill_arrays, NULL, step);
}

/* Verifies all now: who reads piece by piece could not go back to an older checkpoint. */
static int open_saved(struct muster_ckpt *ckpt, struct ckpt *from, void *arg, struct err *err)
{
	struct muster_saved **saved = arg;
	struct ckpt *own;
	int rc = ckpt_verify(from, err);
	if (rc == 0)
		rc = ckpt_open(folder_dir(ckpt->folder), ckpt_manifest(from)->step, ckpt->plan.timeout,
			&own, err);
	if (rc == 0 && !(*saved = saved_make(own, err)))
		rc = -1;
	return rc;
}

int muster_ckpt_load_state(struct muster_ckpt *ckpt, struct muster_saved **saved)
{
	struct err err;
	int64_t step;
	if (muster_check_given(saved, "the place for the struct muster_saved", &err) < 0)
		return muster_failed(&err);
	*saved = NULL;
	if (!ckpt)
		return MUSTER_OK;
	if (check_kind(ckpt, true, &err) < 0)
		return muster_failed(&err);
	return load(ckpt, open_saved, saved, &step);
}

/* ---- save ---- */

/* The folder's own thread looks only a few times a second: without this, a program that stops at
 * once would leave no record of the reason. */
static void record_notice(struct muster_ckpt *ckpt)
{
	struct err err;
	if (notice_signal() && folder_notice(ckpt->folder, notice_signal(), &err) < 0)
		log_warn("checkpoint: couldn't record the notice: %s", err.text);
}

/* Whether memory suffices for a snapshot in this buffer. */
static bool has_room(const struct muster_ckpt *ckpt, int buffer, size_t bytes, size_t *available)
{
	*available = snapshot_memory_available();
	return bytes <= ckpt->used[buffer] || !*available || bytes - ckpt->used[buffer] <= *available;
}

/* A free buffer for a snapshot of that many bytes; -1: there is none. Where memory is short of a
 * second snapshot, the buffer of the first is waited for. */
static int take_buffer(struct muster_ckpt *ckpt, int64_t step, size_t bytes, struct err *err)
{
	size_t available;
	int buffer = ckptd_client_buffer(ckpt->client, -1, ckpt->plan.timeout);
	if (buffer >= 0 && !has_room(ckpt, buffer, bytes, &available) && ckpt->memory.buffers > 1)
		buffer = ckptd_client_buffer(ckpt->client, buffer, ckpt->plan.timeout);
	if (buffer < 0)
		return err_fail(err, EXIT_LOST,
			"checkpoint: couldn't save step %" PRId64 ": the save of step %" PRId64
			" still runs after %g s: save less often, or on faster storage",
			step, outcomes_newest(&ckpt->outcomes, true), ckpt->plan.timeout);
	if (bytes > ckpt->memory.bytes || !has_room(ckpt, buffer, bytes, &available))
		return err_set(err,
			"checkpoint: couldn't save step %" PRId64
			": its snapshot needs %.0f MB of memory, and %.0f MB are left: ask Slurm for more "
			"(--mem)",
			step, (double)bytes * 1e-6, (double)available * 1e-6);
	return buffer;
}

/* Saves the content, which moves into `ckpt`. */
static int save(struct muster_ckpt *ckpt, const struct save_step *at, struct content *content,
	struct err *err)
{
	const bool planned = ckpt->plan.arrays.count > 0;
	record_notice(ckpt);
	int buffer =
		take_buffer(ckpt, at->step, planned ? ckpt->plan.arrays.bytes : content->arrays.bytes, err);
	if (buffer < 0)
		return -1;
	struct content *own = &ckpt->contents[buffer];
	content_release(own);
	*own = *content;
	*content = (struct content) { 0 };
	struct arrays *arrays = planned ? &ckpt->plan.arrays : &own->arrays;
	if (arrays->bytes > ckpt->used[buffer])
		ckpt->used[buffer] = arrays->bytes;
	arrays_copy(arrays, ckpt->memory.base[buffer]);
	arrays_set_base(arrays, ckpt->memory.base[0]);
	struct snapshot snapshot = ckpt->snapshot;
	snapshot.at = *at;
	if (!planned) {
		snapshot.model_json = own->config;
		snapshot.values_json = own->values;
		snapshot.tensors = arrays->tensors;
		snapshot.tensor_count = arrays->count;
	}
	/* Before the call, since the save may end at once. */
	outcomes_begin(&ckpt->outcomes, at->step);
	if (ckptd_client_save(ckpt->client, buffer, &snapshot, err) == 0) {
		ckpt->handed = at->step;
		return 0;
	}
	outcomes_withdraw(&ckpt->outcomes, at->step);
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

/* The common end of the two calls that save; releases the content. */
static int save_checked(struct muster_ckpt *ckpt, const struct save_step *at,
	struct content *content)
{
	struct err err;
	int rc = check_save(ckpt, at->step, &err);
	if (rc == 0) {
		ckpt->begun_here = true;
		folder_progress(ckpt->folder, (uint64_t)at->step);
		if (at->step > outcomes_newest(&ckpt->outcomes, true)) {
			enum flight_phase before = muster_stand(ckpt->muster, FLIGHT_SAVE);
			rc = save(ckpt, at, content, &err);
			muster_stand(ckpt->muster, before);
		}
	}
	content_release(content);
	return rc < 0 ? muster_failed(&err) : MUSTER_OK;
}

int muster_ckpt_save(struct muster_ckpt *ckpt, int64_t step, double loss)
{
	const struct save_step at = { .step = step,
		.cursor = (uint64_t)step,
		.loss = loss,
		.validation_loss = NAN };
	struct content content = { 0 };
	struct err err;
	if (!ckpt)
		return MUSTER_OK;
	if (check_kind(ckpt, false, &err) < 0)
		return muster_failed(&err);
	return save_checked(ckpt, &at, &content);
}

int muster_ckpt_save_state(struct muster_ckpt *ckpt, int64_t step, const struct muster_state *state)
{
	struct save_step at;
	struct content content;
	struct err err;
	if (!ckpt)
		return MUSTER_OK;
	if (check_kind(ckpt, true, &err) < 0 || content_open(&content, state, &at, &err) < 0)
		return muster_failed(&err);
	at.step = step;
	return save_checked(ckpt, &at, &content);
}

int muster_ckpt_wait(struct muster_ckpt *ckpt, int64_t step, double timeout)
{
	struct err err;
	if (!ckpt)
		return MUSTER_OK;
	if (muster_check_timeout(timeout, &err) < 0)
		return muster_failed(&err);
	if (!outcomes_failed(&ckpt->outcomes, step, &err)
		&& (step <= outcomes_newest(&ckpt->outcomes, false)
			|| ckptd_client_wait(ckpt->client, step, muster_or(timeout, ckpt->plan.timeout), &err)
				== 0))
		return MUSTER_OK;
	return muster_failed(&err);
}

int muster_ckpt_attempt(const struct muster_ckpt *ckpt)
{
	return ckpt ? folder_attempt(ckpt->folder) : -1;
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
	int64_t last = outcomes_newest(&ckpt->outcomes, false);
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
