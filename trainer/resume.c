/* SPDX-License-Identifier: Apache-2.0 */
/* From the newest checkpoint, or from nothing, to the state at which the loop begins. */
#include "trainer/resume.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/log.h"
#include "trainer/numerics.h"

/* Name and shape of each tensor stand in the checkpoint as in the table. */
static int check_tensor(struct ckpt *ckpt, const struct tensor *row, struct err *err)
{
	const struct safetensors_tensor *found = ckpt_tensor_find(ckpt, row->name);
	if (!found)
		return err_fail(err, EXIT_DATA, "resume: the checkpoint has no tensor %s", row->name);
	bool same = found->dims == row->dims;
	for (int d = 0; same && d < row->dims; d++)
		same = found->shape[d] == row->shape[d];
	if (!same)
		return err_fail(err, EXIT_DATA, "resume: tensor %s of the checkpoint has another shape", row->name);
	return 0;
}

static int read_state(struct run *run, struct ckpt *ckpt, struct err *err)
{
	struct state *state = &run->state;
	float *arenas[SNAPSHOT_STATES] = { [SNAPSHOT_MASTER] = state->weights, [SNAPSHOT_M] = state->m,
		[SNAPSHOT_V] = state->v };
	for (int i = 0; i < state->tensors->count; i++) {
		const struct tensor *row = &state->tensors->rows[i];
		if (check_tensor(ckpt, row, err) < 0)
			return -1;
		for (int s = 0; s < SNAPSHOT_STATES; s++)
			if (ckpt_read_state(ckpt, (enum snapshot_state)s, row->name, 0, row->count, arenas[s] + row->offset, err) != 0)
				return err_prefix(err, "resume");
	}
	return 0;
}

/* The checkpoint's own parameters against the present ones; the differences that are allowed go to `changes`. */
static int compare(struct run *run, const struct manifest *manifest, json_t *changes, struct err *err)
{
	const struct settings *settings = &run->settings;
	uint64_t step = (uint64_t)manifest->step;
	json_t *earlier = json_object_get(manifest->config, "changes");
	if (json_is_array(earlier) && json_array_extend(changes, earlier) < 0)
		return err_set(err, "resume: out of memory");
	if (settings_compare(settings, dataset_identity(run->data), manifest->config, step, changes, err) < 0)
		return -1;
	if (manifest->cursor != step * (uint64_t)settings->global_batch)
		return err_fail(err, EXIT_DATA, "resume: the checkpoint of step %" PRIu64 " stands at sample %" PRIu64 ", not at %"
			PRIu64, step, manifest->cursor, step * (uint64_t)settings->global_batch);
	return numerics_compare(manifest->numerics, run->numerics, settings->require_identical, step, changes, err);
}

static int make_records(struct run *run, json_t *changes, struct err *err)
{
	json_t *record = settings_record(&run->settings, dataset_identity(run->data));
	if (record && json_array_size(changes))
		json_object_set(record, "changes", changes);
	run->config_json = record ? json_dumps(record, JSON_INDENT(2)) : NULL;
	run->numerics_json = json_dumps(run->numerics, JSON_INDENT(2));
	run->model_json = model_config_json(run->model);
	json_decref(record);
	if (!run->config_json || !run->numerics_json || !run->model_json)
		return err_set(err, "resume: out of memory");
	return 0;
}

static int apply(struct run *run, json_t *changes, struct err *err)
{
	struct ckpt *ckpt = run->folder ? folder_checkpoint(run->folder) : NULL;
	double began = clock_now();
	if (!ckpt) {
		state_init(&run->state, (uint64_t)run->settings.seed);
		return 0;
	}
	const struct manifest *manifest = ckpt_manifest(ckpt);
	if (compare(run, manifest, changes, err) < 0 || read_state(run, ckpt, err) < 0)
		return -1;
	run->state.step = (uint64_t)manifest->step;
	log_info("resume: step %" PRIu64 " from %s, saved by attempt %d with %d rank%s; read in %.2f s", run->state.step,
		folder_dir(run->folder)->path, manifest->attempt, manifest->world_size, manifest->world_size == 1 ? "" : "s",
		clock_now() - began);
	return 0;
}

int resume_apply(struct run *run, struct err *err)
{
	json_t *changes = json_array();
	if (!changes)
		return err_set(err, "resume: out of memory");
	int rc = apply(run, changes, err);
	if (rc == 0)
		rc = make_records(run, changes, err);
	json_decref(changes);
	if (run->folder)
		folder_drop_checkpoint(run->folder);
	return rc;
}
