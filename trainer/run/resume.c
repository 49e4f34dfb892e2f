/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the state at which the loop begins, from the newest checkpoint or from nothing. */
#include "trainer/run/resume.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/record.h"
#include "common/auto.h"
#include "common/bytes.h"
#include "common/clock.h"
#include "common/log.h"
#include "trainer/comm/status_exchange.h"
#include "trainer/run/numerics.h"

#define RESUME_IO_SECONDS 60.0 /* an I/O error is retried for this long */

/* Checks that a tensor has the same name and shape in the checkpoint as in the table. */
static int check_tensor(struct ckpt *ckpt, const struct tensor *row, struct err *err)
{
	const struct safetensors_tensor *found = ckpt_tensor_find(ckpt, row->name);
	int dims = row->role == TENSOR_COUNTER ? 0 : row->dims;
	if (!found)
		return err_fail(err, EXIT_DATA, "resume: the checkpoint has no tensor %s", row->name);
	bool same = found->dims == dims;
	for (int d = 0; same && d < dims; d++)
		same = found->shape[d] == row->shape[d];
	if (!same)
		return err_fail(err, EXIT_DATA, "resume: tensor %s of the checkpoint has another shape",
			row->name);
	enum safetensors_dtype want = row->role == TENSOR_COUNTER ? SAFETENSORS_I64 : SAFETENSORS_F32;
	if (row->role != TENSOR_PARAMETER && found->dtype != want)
		return err_fail(err, EXIT_DATA, "resume: tensor %s of the checkpoint is %s, not %s",
			row->name, safetensors_dtype_name(found->dtype), safetensors_dtype_name(want));
	return 0;
}

/* Reads the model's statistics, which lie beside its weights: few numbers, read after everything is
 * verified. */
static int read_statistics(struct run *run, struct ckpt *ckpt, struct err *err)
{
	struct state *state = &run->state;
	for (int i = 0; i < state->tensors->count; i++) {
		const struct tensor *row = &state->tensors->rows[i];
		int rc = 0;
		if (row->role != TENSOR_PARAMETER)
			rc = ckpt_read_tensor(ckpt, row->name, 0, row->role == TENSOR_COUNTER ? 1 : row->count,
				state->weights + row->offset, err);
		if (rc < 0)
			return rc == -1 ? err_prefix(err, "resume") : rc;
	}
	return 0;
}

/* The parts of the checkpoint to read. */
struct wants {
	struct ckpt_want *wants;
	size_t count;
};

/* Room for whole tensors and for the parts that shards cut out of them. */
static int alloc_wants(struct wants *wants, const struct state *state, struct err *err)
{
	wants->wants = calloc(SNAPSHOT_STATES * ((size_t)state->tensors->count + state->own_count),
		sizeof *wants->wants);
	return wants->wants ? 0 : err_set(err, "resume: out of memory");
}

/* Adds the elements of the arena that are both the shard's and the parameter's. */
static void want(struct wants *wants, const struct tensor *row, enum snapshot_state s, float *arena,
	const struct zero_shard *shard)
{
	const struct zero_shard run = zero_shard_of(shard, row);
	if (run.first < run.end)
		wants->wants[wants->count++] = (struct ckpt_want) { s, row->name, run.first - row->offset,
			run.end - run.first, arena + run.first };
}

/* Adds the moments that this rank keeps. */
static void want_moments(struct wants *wants, const struct state *state)
{
	for (int r = 0; r < state->tensors->count; r++)
		for (size_t i = 0; i < state->own_count; i++) {
			want(wants, &state->tensors->rows[r], SNAPSHOT_M, state->m, &state->own[i]);
			want(wants, &state->tensors->rows[r], SNAPSHOT_V, state->v, &state->own[i]);
		}
}

/* Delivers what is wanted. Where all ranks read, each verifies its share; else this one verifies
 * all, reading each byte once. */
static int load(const struct run *run, struct ckpt *ckpt, const struct wants *wants,
	struct err *err)
{
	return run->state.sharded ? ckpt_load_share(ckpt, wants->wants, wants->count, run->ident.rank,
			   run->ident.world_size, err)
							  : ckpt_load(ckpt, wants->wants, wants->count, err);
}

static int read_state(struct run *run, struct ckpt *ckpt, struct err *err)
{
	struct state *state = &run->state;
	struct wants wants = { 0 };
	if (alloc_wants(&wants, state, err) < 0)
		return -1;
	AUTO_FREE struct ckpt_want *list = wants.wants;
	for (int i = 0; i < state->tensors->count; i++) {
		const struct tensor *row = &state->tensors->rows[i];
		if (check_tensor(ckpt, row, err) < 0)
			return -1;
		want(&wants, row, SNAPSHOT_MASTER, state->weights, &state->whole);
	}
	want_moments(&wants, state);
	int rc = load(run, ckpt, &wants, err);
	if (rc == 0)
		return read_statistics(run, ckpt, err);
	return rc == -1 ? err_prefix(err, "resume") : rc;
}

static int read_moments(const struct run *run, struct ckpt *ckpt, struct err *err)
{
	struct wants wants = { 0 };
	if (alloc_wants(&wants, &run->state, err) < 0)
		return -1;
	want_moments(&wants, &run->state);
	int rc = load(run, ckpt, &wants, err);
	free(wants.wants);
	return rc;
}

/* Adds what this rank alone has found. */
static int prefix_own(const struct run *run, uint64_t step, const char *found, struct err *err)
{
	err_prefix(err,
		"resume: couldn't read this rank's share of step %" PRIu64
		" in %s, which rank 0 has %s (does this node see the same directory?)",
		step, run->settings.ckpt_dir, found);
	return -1;
}

/* The part of the ranks but the first: where each keeps its own moments, it reads these. They make
 * room for what comes from rank 0 meanwhile. CKPT_DAMAGED: as this rank sees the files. */
static int read_own(struct run *run, uint64_t step, struct err *err)
{
	struct ckpt_dir dir;
	struct ckpt *ckpt;
	state_prefault(&run->state);
	if (step == 0)
		state_zero_moments(&run->state);
	if (step == 0 || !run->state.sharded)
		return 0;
	if (ckpt_dir_open_existing(&dir, run->settings.ckpt_dir, err) < 0)
		return err_prefix(err, "resume");
	int rc = ckpt_open(&dir, (int64_t)step, RESUME_IO_SECONDS, &ckpt, err);
	if (rc == 0) {
		rc = read_moments(run, ckpt, err);
		ckpt_close(ckpt);
	}
	ckpt_dir_close(&dir);
	return rc == -1 ? prefix_own(run, step, "opened", err) : rc;
}

/* Reads a tensor of an imported model, in F32, F16 or BF16, as fp32. */
static int read_tensor(struct ckpt *ckpt, const struct tensor *row, float *out, struct err *err)
{
	enum safetensors_dtype dtype = ckpt_tensor_find(ckpt, row->name)->dtype;
	if (dtype == SAFETENSORS_F32)
		return ckpt_read_tensor(ckpt, row->name, 0, row->count, out, err);
	if (dtype != SAFETENSORS_F16 && dtype != SAFETENSORS_BF16)
		return err_fail(err, EXIT_DATA,
			"tensor %s of the checkpoint has type %s, which can't be trained: import it as F32, "
			"F16 or BF16",
			row->name, safetensors_dtype_name(dtype));
	AUTO_FREE uint16_t *halves = calloc(row->count, sizeof *halves);
	if (!halves)
		return err_set(err, "out of memory");
	int rc = ckpt_read_tensor(ckpt, row->name, 0, row->count, halves, err);
	for (size_t i = 0; rc == 0 && i < row->count; i++)
		out[i] = dtype == SAFETENSORS_F16 ? bytes_f16_to_float(bytes_le16(&halves[i]))
										  : bytes_bf16_to_float(bytes_le16(&halves[i]));
	return rc;
}

/* Reads imported weights: the run begins with them instead of random ones, and is a fresh run
 * otherwise. */
static int read_imported(struct run *run, struct ckpt *ckpt, struct err *err)
{
	struct state *state = &run->state;
	int verified = ckpt_verify(ckpt, err);
	if (verified < 0)
		return verified;
	if (ckpt_tensor_count(ckpt) != (size_t)state->tensors->count)
		return err_fail(err, EXIT_DATA,
			"resume: the imported model has %zu tensors, not the %d of this one",
			ckpt_tensor_count(ckpt), state->tensors->count);
	for (int i = 0; i < state->tensors->count; i++) {
		const struct tensor *row = &state->tensors->rows[i];
		if (check_tensor(ckpt, row, err) < 0)
			return -1;
		if (read_tensor(ckpt, row, state->weights + row->offset, err) != 0)
			return err_prefix(err, "resume");
	}
	log_info("resume: the run begins with the imported model in %s/step-00000000",
		folder_dir(run->folder)->path);
	return 0;
}

static bool is_imported(const struct manifest *manifest)
{
	return manifest->step == 0 && json_is_true(json_object_get(manifest->config, "imported"));
}

/* Which samples are normalised together depends on the microbatch and the number of ranks, so
 * neither may change. */
static int compare_batches(const struct settings *settings, int world_size,
	const struct manifest *manifest, struct err *err)
{
	json_int_t microbatch = json_integer_value(json_object_get(manifest->numerics, "microbatch"));
	if (!settings->batchnorm)
		return 0;
	if (world_size != manifest->world_size)
		return err_fail(err, EXIT_USAGE,
			"resume: there %s %d rank%s, but the run in this --ckpt-dir was begun with %d, and "
			"--batchnorm normalises over them: start %d, or a new run in another directory",
			world_size == 1 ? "is" : "are", world_size, world_size == 1 ? "" : "s",
			manifest->world_size, manifest->world_size);
	if (microbatch != settings->microbatch)
		return err_fail(err, EXIT_USAGE,
			"resume: --microbatch is %lld, but the run in this --ckpt-dir was begun with %lld, and "
			"--batchnorm normalises over it: give the old value, or start a new run in another "
			"directory",
			(long long)settings->microbatch, (long long)microbatch);
	return 0;
}

/* Compares the checkpoint's parameters with the present ones; adds allowed differences to
 * `changes`. */
static int compare(struct run *run, const struct manifest *manifest, json_t *changes,
	struct err *err)
{
	const struct settings *settings = &run->settings;
	uint64_t step = (uint64_t)manifest->step;
	json_t *earlier = json_object_get(manifest->config, "changes");
	if (json_is_array(earlier) && json_array_extend(changes, earlier) < 0)
		return err_set(err, "resume: out of memory");
	if (settings_compare(settings, dataset_identity(run->data), manifest->config, step, changes,
			err)
		< 0)
		return -1;
	if (manifest->cursor != step * (uint64_t)settings->global_batch)
		return err_fail(err, EXIT_DATA,
			"resume: the checkpoint of step %" PRIu64 " stands at sample %" PRIu64
			", not at %" PRIu64,
			step, manifest->cursor, step * (uint64_t)settings->global_batch);
	if (compare_batches(settings, run->ident.world_size, manifest, err) < 0)
		return -1;
	return numerics_compare(manifest->numerics, run->numerics, settings->require_identical, step,
		changes, err);
}

static int make_records(struct run *run, json_t *changes, struct err *err)
{
	json_t *record = settings_record(&run->settings, dataset_identity(run->data));
	if (json_array_size(changes))
		record = record_set(record, "changes", json_incref(changes));
	run->config_json = record_dump(record, JSON_INDENT(2));
	run->numerics_json = record_dump(run->numerics, JSON_INDENT(2));
	run->model_json = model_config_json(run->model);
	json_decref(record);
	if (!run->config_json || !run->numerics_json || !run->model_json)
		return err_set(err, "resume: out of memory");
	return 0;
}

static struct ckpt *checkpoint_of(const struct run *run)
{
	return run->folder ? folder_checkpoint(run->folder) : NULL;
}

/* Rank 0 compares the newest checkpoint's record with this run's parameters. *step: what all read
 * then, or 0 where nobody but rank 0 has something to read. */
static int choose(struct run *run, json_t *changes, uint64_t *step, struct err *err)
{
	struct ckpt *ckpt = checkpoint_of(run);
	*step = 0;
	json_array_clear(changes);
	if (!ckpt)
		return 0;
	const struct manifest *manifest = ckpt_manifest(ckpt);
	if (is_imported(manifest))
		return settings_compare_model(&run->settings, manifest->config, err);
	if (compare(run, manifest, changes, err) < 0)
		return -1;
	*step = (uint64_t)manifest->step;
	return 0;
}

/* Rank 0's part: all weights, or the initial ones; and the moments that it keeps. */
static int read_first(struct run *run, uint64_t step, struct err *err)
{
	struct ckpt *ckpt = checkpoint_of(run);
	double began = clock_now();
	if (step == 0) {
		state_init(&run->state, (uint64_t)run->settings.seed);
		return ckpt ? read_imported(run, ckpt, err) : 0;
	}
	int rc = read_state(run, ckpt, err);
	if (rc < 0)
		return rc;
	const struct manifest *manifest = ckpt_manifest(ckpt);
	run->state.step = step;
	log_info("resume: step %" PRIu64 " from %s, saved by attempt %d with %d rank%s; read in %.2f s",
		step, folder_dir(run->folder)->path, manifest->attempt, manifest->world_size,
		manifest->world_size == 1 ? "" : "s", clock_now() - began);
	return 0;
}

/* Rank 0 takes the checkpoint before one that is damaged. Where only others found damage, it looks
 * for itself: one node's view must not cost a good checkpoint. *good: it found none. */
static int refuse(struct run *run, bool found, const struct err *why, bool *good, struct err *err)
{
	struct err own = *why;
	int rc = found ? CKPT_DAMAGED : ckpt_verify(checkpoint_of(run), &own);
	*good = rc == 0;
	if (rc != CKPT_DAMAGED) {
		*err = own;
		return rc;
	}
	return folder_refuse_checkpoint(run->folder, own.text, err) < 0 ? -1 : 0;
}

#define STAGE(call) status_exchange(run->comm, "resume", run->ident.node, (call), err)

/* Collective: whether any rank found damage (`why` of this one's), so that all begin again. */
static int settle(struct run *run, uint64_t step, bool found, const struct err *why, bool *again,
	struct err *err)
{
	bool good = false;
	size_t size = (size_t)run->ident.world_size;
	AUTO_FREE bool *all = calloc(size, sizeof *all);
	if (!all)
		return err_set(err, "resume: out of memory");
	if (comm_wait(run->comm, comm_allgather(run->comm, "damage", &found, all, sizeof found), err)
		< 0)
		return -1;
	*again = memchr(all, true, size) != NULL;
	if (!*again)
		return 0;
	int rc = STAGE(run->ident.rank == 0 ? refuse(run, found, why, &good, err) : 0);
	if (rc < 0)
		return rc;
	if (comm_wait(run->comm, comm_broadcast(run->comm, "damage", &good, sizeof good, 0), err) < 0)
		return -1;
	*err = *why;
	return good ? STAGE(found ? prefix_own(run, step, "verified", err) : 0) : 0;
}

/* Collective: one checkpoint, or none. */
static int read_newest(struct run *run, json_t *changes, bool *again, struct err *err)
{
	uint64_t step = 0;
	int rc = STAGE(run->ident.rank == 0 ? choose(run, changes, &step, err) : 0);
	if (rc < 0)
		return rc;
	if (comm_wait(run->comm, comm_broadcast(run->comm, "step", &step, sizeof step, 0), err) < 0)
		return -1;
	rc = run->ident.rank == 0 ? read_first(run, step, err) : read_own(run, step, err);
	const struct err why = *err;
	const bool found = rc == CKPT_DAMAGED;
	rc = STAGE(found ? 0 : rc);
	return rc < 0 ? rc : settle(run, step, found, &why, again, err);
}

int resume(struct run *run, struct err *err)
{
	bool again = true;
	int rc = 0;
	json_t *changes = json_array();
	if (!changes)
		return err_set(err, "resume: out of memory");
	while (rc == 0 && again)
		rc = read_newest(run, changes, &again, err);
	if (rc == 0)
		rc = STAGE(run->ident.rank == 0 ? make_records(run, changes, err) : 0);
	json_decref(changes);
	if (run->folder)
		folder_drop_checkpoint(run->folder);
	return rc;
}
