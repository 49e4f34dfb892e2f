/* SPDX-License-Identifier: Apache-2.0 */
/* Checks and joins the texts of parts. They come from other nodes and from disks, so nothing in
 * them is trusted before it is checked. */
#include "checkpoint/save/ckpt_part.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

char *ckpt_part_name(int part, int parts, char out[CKPT_PART_NAME_SIZE])
{
	snprintf(out, CKPT_PART_NAME_SIZE, "part-%05d-of-%05d.json", part + 1, parts);
	return out;
}

int ckpt_part_count(const char *name)
{
	int part, parts;
	char again[CKPT_PART_NAME_SIZE];
	if (strlen(name) >= CKPT_PART_NAME_SIZE
		|| sscanf(name, "part-%9d-of-%9d.json", &part, &parts) != 2 || part < 1 || part > parts
		|| strcmp(ckpt_part_name(part - 1, parts, again), name) != 0)
		return 0;
	return parts;
}

static void add_text(struct hasher *hasher, const char *text)
{
	hasher_add(hasher, text, strlen(text) + 1);
}

static void add_tensor(struct hasher *hasher, const struct snapshot_tensor *tensor)
{
	const int32_t numbers[] = { (int32_t)tensor->dtype, tensor->dims, tensor->writer, tensor->state,
		tensor->box != NULL };
	const size_t bytes = (size_t)tensor->dims * sizeof tensor->shape[0];
	add_text(hasher, tensor->name);
	hasher_add(hasher, numbers, sizeof numbers);
	hasher_add(hasher, tensor->shape, bytes);
	if (!tensor->box)
		return;
	hasher_add(hasher, tensor->box->shape, bytes);
	hasher_add(hasher, tensor->box->offset, bytes);
}

int ckpt_part_plan(const struct snapshot *snapshot, char out[HASH_HEX_SIZE], struct err *err)
{
	struct hasher *hasher = hasher_create();
	if (!hasher)
		return err_set(err, "checkpoint: no memory");
	hasher_add(hasher, &snapshot->shard_size, sizeof snapshot->shard_size);
	for (size_t i = 0; i < snapshot->tensor_count; i++)
		add_tensor(hasher, &snapshot->tensors[i]);
	for (size_t i = 0; i < snapshot->slice_count; i++) {
		const struct snapshot_slice *slice = &snapshot->slices[i];
		const uint64_t numbers[] = { slice->first, slice->count, (uint64_t)slice->writer };
		add_text(hasher, slice->tensor);
		hasher_add(hasher, numbers, sizeof numbers);
	}
	hash_hex(hasher_value(hasher), out);
	hasher_destroy(hasher);
	return 0;
}

static struct manifest *parse(const char *text, size_t size, int64_t step, const char *token,
	int part, int parts, struct err *err)
{
	struct manifest *manifest = manifest_parse_part(text, size, err);
	if (!manifest) {
		err_prefix(err, "checkpoint: part %d of %d of step %" PRId64, part + 1, parts, step);
		return NULL;
	}
	if (manifest->step == step && strcmp(manifest->token, token) == 0 && manifest->part == part
		&& manifest->parts == parts)
		return manifest;
	err_fail(err, EXIT_DATA,
		"checkpoint: what should be part %d of %d of step %" PRId64
		" by %s is part %d of %d of step %" PRId64 " by %s",
		part + 1, parts, step, token, manifest->part + 1, manifest->parts, manifest->step,
		manifest->token);
	manifest_destroy(manifest);
	return NULL;
}

int ckpt_part_check(const char *text, size_t size, int64_t step, const char *token, int part,
	int parts, struct err *err)
{
	struct manifest *manifest = parse(text, size, step, token, part, parts, err);
	manifest_destroy(manifest);
	return manifest ? 0 : -1;
}

/* The name of a member in which two parts of one save differ though they must agree; NULL if there
 * is none. */
static const char *difference(const struct manifest *one, const struct manifest *other)
{
	if (one->attempt != other->attempt)
		return "attempt";
	if (one->world_size != other->world_size)
		return "world_size";
	if (one->seed != other->seed)
		return "seed";
	if (one->cursor != other->cursor)
		return "cursor";
	if (!json_equal(one->config, other->config))
		return "config";
	if (strcmp(one->plan, other->plan) != 0)
		return "lists of tensors";
	return json_equal(one->numerics, other->numerics) ? NULL : "numerics";
}

/* Appends the files of a part to the manifest. */
static int add_files(struct manifest *manifest, const struct manifest *part, struct err *err)
{
	for (size_t i = 0; i < part->file_count; i++) {
		const struct manifest_file *from = &part->files[i];
		if (manifest_find(manifest, from->name))
			return err_fail(err, EXIT_DATA,
				"checkpoint: two parts of step %" PRId64 " have a file %s", manifest->step,
				from->name);
		struct manifest_file *file =
			manifest_add_file(manifest, from->name, from->role, from->size);
		if (!file)
			return err_set(err, "checkpoint: no memory");
		file->hash = from->hash;
		memcpy(file->chunks, from->chunks, from->chunk_count * sizeof *from->chunks);
	}
	return 0;
}

static int join(struct manifest *manifest, const struct manifest *part, struct err *err)
{
	const char *what = difference(manifest, part);
	if (what)
		return err_fail(err, EXIT_DATA,
			"checkpoint: parts 1 and %d of step %" PRId64 " differ in their %s", part->part + 1,
			part->step, what);
	return add_files(manifest, part, err);
}

struct manifest *ckpt_part_join(char *const *texts, const size_t *sizes, int parts, int64_t step,
	const char *token, struct err *err)
{
	struct manifest *manifest = NULL;
	for (int i = 0; i < parts; i++) {
		struct manifest *part = parse(texts[i], sizes[i], step, token, i, parts, err);
		int result = part ? 0 : -1;
		if (i == 0)
			manifest = part;
		else if (part)
			result = join(manifest, part, err);
		if (i > 0)
			manifest_destroy(part);
		if (result < 0) {
			manifest_destroy(manifest);
			return NULL;
		}
	}
	if (manifest)
		manifest->part = manifest->parts = 0;
	else
		err_fail(err, EXIT_DATA, "checkpoint: a save of %d parts can't be", parts);
	return manifest;
}
