/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint directory for a program's own arrays. checkpoint/attempt/folder.h holds the
 * directory; each save is copied to a buffer of shared memory, from which the checkpoint service
 * writes it. */
#include "config.h"
#include "lib/ckpt_open.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "checkpoint/directory/owner.h"
#include "common/record.h"
#include "common/log.h"
#include "common/notice.h"
#include "launch/job_query.h"
#include "launch/rank_address.h"
#include "launch/requeue_ask.h"
#include "lib/saved.h"

#define START_SECONDS 30.0 /* to find or start a checkpoint service */

/* ---- start ---- */

static void take_result(void *arg, const struct save_result *result)
{
	struct muster_ckpt *ckpt = arg;
	struct save_result own = *result;
	/* The others hear no more of it: the whole becomes durable in part 0's service. */
	if (own.outcome == SAVE_WRITTEN && ckpt->writers.part > 0)
		own.outcome = SAVE_DURABLE;
	outcomes_take(&ckpt->outcomes, &own);
	if (result->outcome == SAVE_DURABLE && ckpt->folder)
		folder_saved(ckpt->folder, result->seconds);
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

size_t muster_ckpt_memory(const struct muster_ckpt *ckpt)
{
	const int sharers = ckpt->writers.sharers > 0 ? ckpt->writers.sharers : 1;
	return snapshot_memory_available() / (size_t)sharers;
}

/* The bytes of a buffer, and whether memory is short of two. The pages of a buffer cost memory once
 * something is copied there: where only the saves will tell how large they are, it has room for as
 * much as the machine. */
static size_t buffer_bytes(const struct muster_ckpt *ckpt, bool *is_short)
{
	const size_t bytes = ckpt->plan.arrays.bytes, available = muster_ckpt_memory(ckpt);
	*is_short = available && available < CKPT_SLOTS * bytes;
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
	if (snapshot_memory_create(&ckpt->memory, is_short ? 1 : CKPT_SLOTS, bytes, err) < 0)
		return -1;
	/* A process that the program forks would keep the memory if it outlived this one. */
	for (int i = 0; i < ckpt->memory.buffers; i++)
		madvise(ckpt->memory.base[i], ckpt->memory.bytes, MADV_DONTFORK);
	arrays_set_base(&ckpt->plan.arrays, ckpt->memory.base[0]);
	return 0;
}

static int describe_run(struct muster_ckpt *ckpt, struct err *err)
{
	json_t *identity = ckpt->plan.identity ? json_incref(ckpt->plan.identity)
										   : json_pack("{s:s}", "program", ckpt->told.program);
	json_t *config = json_pack("{s:o, s:{}, s:{}}", "identity", identity, "schedule", "operation");
	ckpt->config_json = record_dump(config, JSON_INDENT(2));
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
		.part = ckpt->writers.part,
		.parts = writers_count(&ckpt->writers) };
	return 0;
}

/* Becomes the owner, or with `told` opens the directory that rank 0 owns. */
static int open_dir(struct muster_ckpt *ckpt, const char *path, const struct told *told,
	struct err *err)
{
	if (told) {
		ckpt->told = *told;
		ckpt->begun_here = true;
		outcomes_load(&ckpt->outcomes, told->step);
		ckpt->dir_opened = ckpt_dir_open_existing(&ckpt->dir, path, err) == 0;
		return ckpt->dir_opened ? 0 : -1;
	}
	const struct job_times times = job_times(ckpt->ident.job);
	const struct folder_job job = { .ident = &ckpt->ident,
		.submitted = times.submitted,
		.started = times.began,
		.ends = times.ends,
		.ends_now = job_ends,
		.is_running = job_is_running };
	ckpt->folder = folder_open(path, &job, false, ckpt->plan.timeout, err);
	if (!ckpt->folder)
		return -1;
	ckpt->told.attempt = folder_attempt(ckpt->folder);
	snprintf(ckpt->told.token, sizeof ckpt->told.token, "%s", folder_token(ckpt->folder));
	snprintf(ckpt->told.program, sizeof ckpt->told.program, "%s", program_invocation_short_name);
	return 0;
}

static int open_client(struct muster_ckpt *ckpt, struct err *err)
{
	char host[RANK_ADDRESS_SIZE] = "";
	const bool first = ckpt->writers.part == 0, alone = writers_count(&ckpt->writers) == 1;
	if (first && !alone && rank_address(&ckpt->ident, host, err) < 0)
		return -1;
	const struct ckptd_plan service = { .dir = muster_ckpt_dir(ckpt),
		.token = ckpt->told.token,
		.memory = &ckpt->memory,
		.snapshot = &ckpt->snapshot,
		.retention = ckpt->plan.retention,
		.host = first && !alone ? host : NULL,
		.first = first ? NULL : ckpt->told.first,
		.timeout = START_SECONDS,
		.ended = take_result,
		.lost = tell_lost,
		.arg = ckpt };
	ckpt->client = ckptd_client_open(&service, err);
	if (ckpt->client && first)
		snprintf(ckpt->told.first, sizeof ckpt->told.first, "%s",
			ckptd_client_address(ckpt->client));
	return ckpt->client ? 0 : -1;
}

static int open_stages(struct muster_ckpt *ckpt, const char *path, const struct told *told,
	struct err *err)
{
	if (arrays_divide(&ckpt->plan.arrays, &ckpt->writers, err) < 0 || make_memory(ckpt, err) < 0
		|| open_dir(ckpt, path, told, err) < 0 || describe_run(ckpt, err) < 0)
		return -1;
	return open_client(ckpt, err);
}

static void release(struct muster_ckpt *ckpt)
{
	ckptd_client_close(ckpt->client, 0);
	folder_close(ckpt->folder, true);
	if (ckpt->dir_opened)
		ckpt_dir_close(&ckpt->dir);
	snapshot_memory_release(&ckpt->memory);
	plan_release(&ckpt->plan);
	free(ckpt->config_json);
	for (int i = 0; i < CKPT_SLOTS; i++)
		content_release(&ckpt->contents[i]);
	outcomes_close(&ckpt->outcomes);
	writers_release(&ckpt->writers);
	free(ckpt);
}

/* Takes ownership of *plan and *writers, even on an error. */
static struct muster_ckpt *make(struct muster *muster, struct plan *plan, struct writers *writers,
	struct err *err)
{
	struct muster_ckpt *ckpt = calloc(1, sizeof *ckpt);
	if (!ckpt) {
		plan_release(plan);
		writers_release(writers);
		err_set(err, "checkpoint: out of memory");
		return NULL;
	}
	*ckpt = (struct muster_ckpt) { .muster = muster,
		.ident = muster->ident,
		.writers = *writers,
		.plan = *plan,
		.handed = -1 };
	*writers = (struct writers) { 0 };
	outcomes_open(&ckpt->outcomes);
	return ckpt;
}

int muster_ckpt_open_part(struct muster *muster, const struct muster_ckpt_plan *given,
	struct writers *writers, const struct told *told, struct muster_ckpt **out)
{
	struct err err;
	struct plan plan;
	*out = NULL;
	if (plan_open(&plan, given, &err) < 0) {
		writers_release(writers);
		return muster_failed(&err);
	}
	if (plan.writers != MUSTER_WRITERS_RANK0 && !writers->part_of) {
		plan_release(&plan);
		err_fail(&err, EXIT_USAGE,
			"checkpoint: couldn't use the plan: it has several writers, which meet in "
			"muster_ckpt_resume or muster_ckpt_resume_state");
		return muster_failed(&err);
	}
	struct muster_ckpt *ckpt = make(muster, &plan, writers, &err);
	if (!ckpt)
		return muster_failed(&err);
	if (open_stages(ckpt, given->dir, told, &err) < 0) {
		release(ckpt);
		return muster_failed(&err);
	}
	if (ckpt->folder)
		flight_files_begin(muster_ckpt_dir(ckpt)->fd);
	muster_keep_flight(muster, given->dir);
	*out = ckpt;
	return MUSTER_OK;
}

int muster_ckpt_open(struct muster *muster, const struct muster_ckpt_plan *given,
	struct muster_ckpt **out)
{
	struct err err;
	if (muster_check_given(out, "the place for the struct muster_ckpt", &err) < 0)
		return muster_failed(&err);
	*out = NULL;
	if (muster_check(muster, 0, &err) < 0)
		return muster_failed(&err);
	struct writers writers = { .rank = muster->ident.rank };
	return muster_ckpt_open_part(muster, given, &writers, NULL, out);
}

/* ---- load ---- */

int muster_ckpt_check_kind(const struct muster_ckpt *ckpt, bool states, struct err *err)
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
	if (muster_ckpt_check_kind(ckpt, false, &err) < 0)
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
	if (muster_ckpt_check_kind(ckpt, true, &err) < 0)
		return muster_failed(&err);
	return load(ckpt, open_saved, saved, &step);
}

/* ---- end ---- */

void muster_ckpt_record_notice(struct muster_ckpt *ckpt)
{
	struct err err;
	if (ckpt->folder && notice_signal() && folder_notice(ckpt->folder, notice_signal(), &err) < 0)
		log_warn("checkpoint: couldn't record the notice: %s", err.text);
}

int muster_ckpt_attempt(const struct muster_ckpt *ckpt)
{
	return ckpt ? ckpt->told.attempt : -1;
}

static bool has_other_owner(const struct muster_ckpt *ckpt)
{
	struct err err;
	return owner_verify(muster_ckpt_dir(ckpt), ckpt->told.token, &err) < 0
		&& err.status == EXIT_FAULT;
}

/* As in muster-train: whatever prevents the last save, the next attempt may succeed, unless another
 * attempt owns the directory. */
int muster_ckpt_drain(struct muster_ckpt *ckpt, double timeout)
{
	if (!ckpt)
		return MUSTER_OK;
	muster_ckpt_record_notice(ckpt);
	int rc = ckpt->handed >= 0 ? muster_ckpt_wait(ckpt, ckpt->handed, timeout) : MUSTER_OK;
	return rc == MUSTER_FAULT && !has_other_owner(ckpt) ? MUSTER_LOST : rc;
}

int muster_ckpt_leave(struct muster_ckpt *ckpt, int status, const char *why, struct err *err)
{
	if (!ckpt)
		return 0;
	muster_ckpt_record_notice(ckpt);
	int64_t last = outcomes_newest(&ckpt->outcomes, false);
	int rc = ckpt->folder
		? folder_end(ckpt->folder, last > 0 ? (uint64_t)last : 0, why, status, err)
		: 0;
	release(ckpt);
	return rc;
}

int muster_ckpt_close(struct muster_ckpt *ckpt, int status, const char *why)
{
	struct err err;
	if (!ckpt)
		return MUSTER_OK;
	const struct ident ident = ckpt->ident;
	const bool owner = ckpt->folder;
	int rc = muster_ckpt_drain(ckpt, 0);
	if (muster_ckpt_leave(ckpt, status, why, &err) < 0 && rc == MUSTER_OK)
		rc = muster_failed(&err);
	if (owner)
		requeue_ask(&ident, status);
	return rc;
}
