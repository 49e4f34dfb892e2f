/* SPDX-License-Identifier: Apache-2.0 */
/* Saves: each is copied to a buffer of shared memory, from which the checkpoint service writes
 * it. */
#include "config.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "common/log.h"
#include "lib/ckpt_open.h"

/* Whether memory suffices for a snapshot in this buffer. */
static bool has_room(const struct muster_ckpt *ckpt, int buffer, size_t bytes, size_t *available)
{
	*available = muster_ckpt_memory(ckpt);
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
	muster_ckpt_record_notice(ckpt);
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
	const char *path = muster_ckpt_dir(ckpt)->path;
	if (step < 0)
		return err_fail(err, EXIT_USAGE,
			"checkpoint: couldn't save step %" PRId64 ": steps count from 0", step);
	if (there)
		return err_fail(err, EXIT_USAGE,
			"checkpoint: couldn't save step %" PRId64 ": %s holds step %" PRId64
			" already: load that first, or use a directory of its own",
			step, path, ckpt_manifest(there)->step);
	if (ckpt->folder && folder_lost(ckpt->folder))
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
		if (ckpt->folder)
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
	if (muster_ckpt_check_kind(ckpt, false, &err) < 0)
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
	if (muster_ckpt_check_kind(ckpt, true, &err) < 0
		|| content_open(&content, state, &ckpt->writers, &at, &err) < 0)
		return muster_failed(&err);
	if (arrays_check_data(&content.arrays, &err) < 0) {
		content_release(&content);
		return muster_failed(&err);
	}
	at.step = step;
	return save_checked(ckpt, &at, &content);
}

int muster_ckpt_own(const struct muster_ckpt *ckpt, const struct muster_state *state,
	unsigned char *own)
{
	struct save_step at;
	struct content content;
	struct err err;
	if (muster_check_given(own, "the place for what this rank saves", &err) < 0
		|| muster_check_given(state, "the state", &err) < 0)
		return muster_failed(&err);
	if (!ckpt) {
		memset(own, 0, state->model_count + state->state_count);
		return MUSTER_OK;
	}
	if (content_open(&content, state, &ckpt->writers, &at, &err) < 0)
		return muster_failed(&err);
	arrays_own(&content.arrays, own);
	content_release(&content);
	return MUSTER_OK;
}

size_t muster_memory(void)
{
	return snapshot_memory_available();
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
