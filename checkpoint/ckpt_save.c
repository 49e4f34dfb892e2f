/* SPDX-License-Identifier: Apache-2.0 */
/* Saving, as a ladder: files into a hidden folder, each durable; the manifest last; then one rename, which is the commit.
 * Until the rename nothing that a reader looks at has changed, so every fault before it costs only this save. */
#include "checkpoint/ckpt_save.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/ckpt.h"
#include "checkpoint/owner.h"
#include "checkpoint/shard.h"
#include "common/auto.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/log.h"

#define MODEL_SHARD "model-00001-of-00001.safetensors"
#define OPTIMIZER_SHARD "optimizer-00001-of-00001.safetensors"
#define INDEX_NAME "model.safetensors.index.json"
#define CONFIG_NAME "config.json"
#define EXISTING_IO_TIMEOUT 10.0 /* seconds of retries while a folder that has our name is looked at */

/* What the stages of one save share. */
struct saving {
	const struct ckpt_dir *dir;
	const struct snapshot *snapshot;
	char name[CKPT_STEP_NAME_SIZE]; /* of the checkpoint */
	char temporary[CKPT_STEP_NAME_SIZE + 64];
	int fd;                         /* of the temporary folder */
	struct manifest *manifest;
	char *text;                     /* the manifest's */
	size_t text_size;
	uint64_t bytes;
};

/* ---- one file ---- */

/* A run of bytes of a file. */
struct piece {
	const void *data;
	uint64_t size;
};

static int write_file(struct saving *saving, const char *name, enum manifest_role role, const struct piece *pieces,
	size_t count, struct err *err)
{
	uint64_t size = 0;
	for (size_t i = 0; i < count; i++)
		size += pieces[i].size;
	struct manifest_file *file = manifest_add_file(saving->manifest, name, role, size);
	if (!file)
		return err_set(err, "checkpoint: no memory");
	struct shard_writer *writer = shard_create(saving->fd, file, err);
	if (!writer)
		return -1;
	for (size_t i = 0; i < count; i++)
		if (shard_write(writer, pieces[i].data, (size_t)pieces[i].size, err) < 0) {
			shard_abandon(writer);
			return -1;
		}
	saving->bytes += size;
	return shard_commit(writer, err);
}

static int write_text(struct saving *saving, const char *name, enum manifest_role role, const char *text,
	struct err *err)
{
	struct piece piece = { text, strlen(text) };
	return write_file(saving, name, role, &piece, 1, err);
}

/* ---- the model ---- */

/* Wider elements first, so that each tensor begins at a multiple of its element's size; else in the order given. */
static size_t order_tensors(const struct snapshot *snapshot, struct safetensors_tensor *tensors, struct piece *pieces)
{
	static const unsigned widths[] = { 64, 32, 16, 8 };
	size_t count = 0;
	for (size_t w = 0; w < sizeof widths / sizeof widths[0]; w++)
		for (size_t i = 0; i < snapshot->tensor_count; i++) {
			const struct snapshot_tensor *from = &snapshot->tensors[i];
			unsigned bits = safetensors_dtype_bits(from->dtype);
			if ((bits < 8 ? 8 : bits) != widths[w])
				continue;
			tensors[count] = (struct safetensors_tensor){ .name = (char *)from->name, .dtype = from->dtype,
				.dims = from->dims };
			memcpy(tensors[count].shape, from->shape, sizeof from->shape);
			pieces[++count].data = from->data;
		}
	return count;
}

static int write_index(struct saving *saving, const struct safetensors_tensor *tensors, size_t count, uint64_t total,
	struct err *err)
{
	json_t *map = json_object();
	for (size_t i = 0; i < count; i++)
		json_object_set_new(map, tensors[i].name, json_string(MODEL_SHARD));
	json_t *index = json_pack("{s:{s:I}, s:o}", "metadata", "total_size", (json_int_t)total, "weight_map", map);
	AUTO_FREE char *text = index ? json_dumps(index, JSON_INDENT(1)) : NULL;
	json_decref(index);
	if (!text)
		return err_set(err, "checkpoint: no memory");
	return write_text(saving, INDEX_NAME, MANIFEST_INDEX, text, err);
}

static int write_model(struct saving *saving, struct err *err)
{
	static const struct safetensors_note format = { "format", "pt" };
	const struct snapshot *snapshot = saving->snapshot;
	AUTO_FREE struct safetensors_tensor *tensors = calloc(snapshot->tensor_count + 1, sizeof *tensors);
	AUTO_FREE struct piece *pieces = calloc(snapshot->tensor_count + 1, sizeof *pieces);
	AUTO_FREE char *prefix = NULL;
	size_t prefix_size;
	uint64_t total;
	if (!tensors || !pieces)
		return err_set(err, "checkpoint: no memory");
	size_t count = order_tensors(snapshot, tensors, pieces);
	if (safetensors_encode(tensors, count, &format, 1, &prefix, &prefix_size, &total, err) < 0)
		return -1;
	pieces[0] = (struct piece){ prefix, prefix_size };
	for (size_t i = 0; i < count; i++)
		pieces[i + 1].size = tensors[i].end - tensors[i].begin;
	if (write_file(saving, MODEL_SHARD, MANIFEST_MODEL, pieces, count + 1, err) < 0 ||
		write_index(saving, tensors, count, total, err) < 0)
		return -1;
	return write_text(saving, CONFIG_NAME, MANIFEST_CONFIG, snapshot->model_json, err);
}

/* ---- the optimizer ---- */

/* The slices as the text of the shard's metadata entry "slices": [[tensor, first, count], …]. */
static char *slices_text(const struct snapshot *snapshot, uint64_t *elements)
{
	json_t *slices = json_array();
	*elements = 0;
	for (size_t i = 0; i < snapshot->slice_count; i++) {
		const struct snapshot_slice *slice = &snapshot->slices[i];
		json_array_append_new(slices, json_pack("[s, I, I]", slice->tensor, (json_int_t)slice->first,
			(json_int_t)slice->count));
		*elements += slice->count;
	}
	char *text = json_array_size(slices) == snapshot->slice_count ? json_dumps(slices, JSON_COMPACT) : NULL;
	json_decref(slices);
	return text;
}

static int write_optimizer(struct saving *saving, struct err *err)
{
	const struct snapshot *snapshot = saving->snapshot;
	size_t slices = snapshot->slice_count;
	uint64_t elements, total;
	size_t prefix_size;
	AUTO_FREE char *text = slices_text(snapshot, &elements);
	AUTO_FREE struct piece *pieces = calloc(SNAPSHOT_STATES * slices + 1, sizeof *pieces);
	AUTO_FREE char *prefix = NULL;
	if (!text || !pieces)
		return err_set(err, "checkpoint: no memory, or a tensor's name is not UTF-8");
	struct safetensors_note notes[] = { { "format", "pt" }, { "slices", text } };
	struct safetensors_tensor states[SNAPSHOT_STATES];
	for (int s = 0; s < SNAPSHOT_STATES; s++) {
		states[s] = (struct safetensors_tensor){ .name = (char *)snapshot_state_name(s), .dtype = SAFETENSORS_F32,
			.dims = 1, .shape = { (int64_t)elements } };
		for (size_t i = 0; i < slices; i++)
			pieces[1 + (size_t)s * slices + i] = (struct piece){ snapshot->slices[i].state[s],
				snapshot->slices[i].count * sizeof(float) };
	}
	if (safetensors_encode(states, SNAPSHOT_STATES, notes, 2, &prefix, &prefix_size, &total, err) < 0)
		return -1;
	pieces[0] = (struct piece){ prefix, prefix_size };
	return write_file(saving, OPTIMIZER_SHARD, MANIFEST_OPTIMIZER, pieces, SNAPSHOT_STATES * slices + 1, err);
}

/* ---- the manifest ---- */

static json_t *parse_group(const char *what, const char *text, struct err *err)
{
	json_error_t why;
	json_t *object = text ? json_loads(text, JSON_REJECT_DUPLICATES, &why) : NULL;
	if (!object)
		err_set(err, "checkpoint: the snapshot's %s is not valid JSON: %s", what, text ? why.text : "it is missing");
	return object;
}

static int start_manifest(struct saving *saving, const char *token, struct err *err)
{
	const struct snapshot *snapshot = saving->snapshot;
	struct manifest *manifest = saving->manifest = manifest_create();
	if (!manifest)
		return err_set(err, "checkpoint: no memory");
	manifest->step = snapshot->step;
	manifest->attempt = snapshot->attempt;
	manifest->world_size = snapshot->world_size;
	manifest->time = clock_wall();
	manifest->seed = snapshot->seed;
	manifest->cursor = snapshot->cursor;
	manifest->loss = snapshot->loss;
	manifest->validation_loss = snapshot->validation_loss;
	snprintf(manifest->token, sizeof manifest->token, "%s", token);
	manifest->config = parse_group("configuration", snapshot->config_json, err);
	manifest->numerics = manifest->config ? parse_group("numerics", snapshot->numerics_json, err) : NULL;
	return manifest->numerics ? 0 : -1;
}

/* Like any other file, but in no list: its text holds its own hash. */
static int write_manifest(struct saving *saving, struct err *err)
{
	if (manifest_encode(saving->manifest, &saving->text, &saving->text_size, err) < 0)
		return -1;
	struct hash128 chunks[MANIFEST_SIZE_MAX / MANIFEST_CHUNK + 1];
	struct manifest_file file = { .name = MANIFEST_NAME, .size = saving->text_size, .chunks = chunks };
	if (saving->text_size > MANIFEST_SIZE_MAX)
		return err_set(err, "checkpoint: a manifest of %zu bytes is too large", saving->text_size);
	struct shard_writer *writer = shard_create(saving->fd, &file, err);
	if (!writer)
		return -1;
	if (shard_write(writer, saving->text, saving->text_size, err) < 0) {
		shard_abandon(writer);
		return -1;
	}
	saving->bytes += saving->text_size;
	return shard_commit(writer, err);
}

/* ---- the commit ---- */

static int make_temporary(struct saving *saving, struct err *err)
{
	const struct ckpt_dir *dir = saving->dir;
	if (ckpt_remove_folder(dir->fd, saving->temporary, err) < 0)
		return -1;
	if (mkdirat(dir->fd, saving->temporary, 0755) < 0)
		return err_fail(err, io_status(errno), "checkpoint: couldn't make %s/%s: %m", dir->path, saving->temporary);
	saving->fd = openat(dir->fd, saving->temporary, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (saving->fd < 0)
		return err_fail(err, io_status(errno), "checkpoint: couldn't open %s/%s: %m", dir->path, saving->temporary);
	return 0;
}

/* Whether the folder of our step holds our own manifest: a rename whose answer was lost on the network has succeeded. */
static bool is_committed(const struct saving *saving)
{
	char path[CKPT_STEP_NAME_SIZE + sizeof "/" MANIFEST_NAME];
	AUTO_FREE char *text = NULL;
	size_t size;
	snprintf(path, sizeof path, "%s/" MANIFEST_NAME, saving->name);
	return io_read_file(saving->dir->fd, path, MANIFEST_SIZE_MAX, &text, &size, NULL) == 0 &&
		size == saving->text_size && memcmp(text, saving->text, size) == 0;
}

/* A folder of our step is there. Returns 1 if it verifies (ours is discarded), 0 if it was set aside, -1 on error. */
static int look_at_existing(const struct saving *saving, struct err *err)
{
	struct ckpt *ckpt;
	int result = ckpt_open(saving->dir, saving->snapshot->step, EXISTING_IO_TIMEOUT, &ckpt, err);
	if (result == 0) {
		result = ckpt_verify(ckpt, err);
		ckpt_close(ckpt);
	}
	if (result == CKPT_DAMAGED)
		return ckpt_dir_set_aside(saving->dir, saving->snapshot->step, err->text, err);
	return result < 0 ? -1 : 1;
}

/* Returns 0 renamed, 1 a valid checkpoint has the name already, -1 on error. */
static int rename_folder(const struct saving *saving, struct err *err)
{
	int fd = saving->dir->fd;
	for (int attempt = 0; attempt < 2; attempt++) {
		if (renameat(fd, saving->temporary, fd, saving->name) == 0)
			return 0;
		int why = errno;
		if (is_committed(saving))
			return 0;
		if (why != EEXIST && why != ENOTEMPTY)
			return err_fail(err, io_status(why), "checkpoint: couldn't rename %s/%s to %s: %s", saving->dir->path,
				saving->temporary, saving->name, strerror(why));
		int existing = look_at_existing(saving, err);
		if (existing != 0)
			return existing;
	}
	return err_set(err, "checkpoint: couldn't commit %s/%s: its name is taken again and again", saving->dir->path,
		saving->name);
}

static void point_latest(const struct saving *saving)
{
	char line[CKPT_STEP_NAME_SIZE + 1];
	struct err err;
	int length = snprintf(line, sizeof line, "%s\n", saving->name);
	if (io_replace_durably(saving->dir->fd, "latest", line, (size_t)length, &err) < 0)
		log_warn("checkpoint: %s is saved, but the hint \"latest\" is not: %s", saving->name, err.text);
}

/* ---- the ladder ---- */

static int check_snapshot(const struct snapshot *snapshot, struct err *err)
{
	if (snapshot->step < 0 || !snapshot->model_json || !snapshot->tensors || snapshot->tensor_count == 0)
		return err_set(err, "checkpoint: the snapshot has no step, tensors or configuration of the model");
	for (size_t i = 0; i < snapshot->slice_count; i++)
		for (int s = 0; s < SNAPSHOT_STATES; s++)
			if (!snapshot->slices[i].state[s] || snapshot->slices[i].count > INT64_MAX / 64)
				return err_set(err, "checkpoint: slice %zu of %s is not valid", i, snapshot->slices[i].tensor);
	return 0;
}

static int write_files(struct saving *saving, const char *token, struct err *err)
{
	if (start_manifest(saving, token, err) < 0 || make_temporary(saving, err) < 0 || write_model(saving, err) < 0)
		return -1;
	if (saving->snapshot->slice_count > 0 && write_optimizer(saving, err) < 0)
		return -1;
	if (write_manifest(saving, err) < 0)
		return -1;
	if (io_sync_dir(saving->fd, err) < 0)
		return err_prefix(err, "checkpoint: %s/%s", saving->dir->path, saving->temporary);
	return 0;
}

static int commit(struct saving *saving, const char *token, bool *taken, struct err *err)
{
	if (owner_verify(saving->dir, token, err) < 0)
		return -1;
	int renamed = rename_folder(saving, err);
	if (renamed < 0)
		return -1;
	*taken = renamed == 1;
	if (io_sync_dir(saving->dir->fd, err) < 0)
		return err_prefix(err, "checkpoint: %s/%s is complete, but may not outlive a crash of the storage",
			saving->dir->path, saving->name);
	return 0;
}

static void discard(const struct saving *saving)
{
	struct err why;
	if (ckpt_remove_folder(saving->dir->fd, saving->temporary, &why) < 0)
		log_warn("checkpoint: couldn't remove an unfinished save: %s", why.text);
}

int ckpt_save(const struct ckpt_dir *dir, const struct snapshot *snapshot, const char *token,
	const struct ckpt_save_options *options, struct ckpt_saved *saved, struct err *err)
{
	(void)options; /* one thread, through the page cache */
	struct err own;
	struct saving saving = { .dir = dir, .snapshot = snapshot, .fd = -1 };
	double began = clock_now();
	bool taken = false;
	err = err ? err : &own;
	ckpt_step_name(snapshot->step, saving.name);
	snprintf(saving.temporary, sizeof saving.temporary, ".saving-%s-%s", saving.name, token);
	int result = check_snapshot(snapshot, err);
	if (result == 0)
		result = write_files(&saving, token, err);
	if (result == 0)
		result = commit(&saving, token, &taken, err);
	if (result < 0 || taken)
		discard(&saving);
	if (result == 0) {
		point_latest(&saving);
		if (saved)
			*saved = (struct ckpt_saved){ saving.bytes, clock_now() - began, taken };
	}
	if (saving.fd >= 0)
		close(saving.fd);
	manifest_destroy(saving.manifest);
	free(saving.text);
	return result;
}
