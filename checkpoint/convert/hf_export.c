/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a checkpoint's model as Hugging Face does, one tensor after the other through one block of
 * memory, so that a model of any size can be exported. */
#include "checkpoint/convert/hf_export.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/record.h"
#include "checkpoint/save/shard_plan.h"
#include "common/auto.h"
#include "common/bytes.h"
#include "common/io.h"

#define BLOCK (1u << 20) /* elements */

struct exporting {
	struct ckpt *ckpt;
	int dirfd;
	const struct hf_export *export;
	struct shard_group *groups;
	size_t files;
	float *values; /* [BLOCK] */
	void *raw;     /* BLOCK elements, as stored or in the new dtype */
	json_t *weight_map;
	uint64_t bytes;
};

/* ---- one file ---- */

static int write_fault(const char *verb, const char *name, struct err *err)
{
	return err_fail(err, io_status(errno), "export: couldn't %s %s: %m", verb, name);
}

static int create(const struct exporting *e, const char *name, struct err *err)
{
	int fd = openat(e->dirfd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
	return fd < 0 ? write_fault("create", name, err) : fd;
}

/* fsync and close, both checked; `result` is that of the writes before. Returns the first
 * failure. */
static int finish(int fd, const char *name, int result, struct err *err)
{
	if (result == 0 && fsync(fd) < 0)
		result = write_fault("fsync", name, err);
	if (close(fd) < 0 && result == 0)
		result = write_fault("close", name, err);
	return result;
}

static int write_text(const struct exporting *e, const char *name, const char *text,
	struct err *err)
{
	int fd = create(e, name, err);
	if (fd < 0)
		return -1;
	int result = io_write_full(fd, text, strlen(text)) < 0 ? write_fault("write", name, err) : 0;
	return finish(fd, name, result, err);
}

static char *file_name(const struct exporting *e, size_t file, char out[64])
{
	if (e->files == 1)
		snprintf(out, 64, "model.safetensors");
	else
		snprintf(out, 64, "model-%05zu-of-%05zu.safetensors", file + 1, e->files);
	return out;
}

/* ---- tensors ---- */

/* A model with batch norm counts batches as integers, which are copied unchanged. */
static bool stays(const struct safetensors_tensor *tensor)
{
	return tensor->dtype == SAFETENSORS_I64;
}

/* The i-th tensor of a file. Wider elements come first, so that each tensor is aligned to its
 * element's size. */
static const struct safetensors_tensor *tensor_of(const struct exporting *e,
	const struct shard_group *group, size_t i)
{
	for (int pass = 0; pass < 2; pass++)
		for (size_t k = 0; k < group->count; k++) {
			const struct safetensors_tensor *tensor = ckpt_tensor_at(e->ckpt, group->first + k);
			if (stays(tensor) == (pass == 0) && i-- == 0)
				return tensor;
		}
	return NULL;
}

static int read_block(struct exporting *e, const struct safetensors_tensor *tensor, uint64_t first,
	size_t count, struct err *err)
{
	if (tensor->dtype != SAFETENSORS_F32 && ckpt_has_state(e->ckpt, tensor->name))
		return ckpt_read_state(e->ckpt, SNAPSHOT_MASTER, tensor->name, first, count, e->values,
			err);
	int result = ckpt_read_tensor(e->ckpt, tensor->name, first, count, e->raw, err);
	if (result == 0)
		safetensors_to_fp32(tensor->dtype, e->raw, count, e->values);
	return result;
}

/* Converts e->values to the new dtype in e->raw; returns the number of bytes. */
static size_t convert(struct exporting *e, size_t count)
{
	char *to = e->raw;
	if (e->export->dtype == SAFETENSORS_F32) {
		memcpy(to, e->values, count * sizeof *e->values);
		return count * sizeof *e->values;
	}
	for (size_t i = 0; i < count; i++)
		bytes_put_le16(to + 2 * i, bytes_float_to_bf16(e->values[i]));
	return 2 * count;
}

/* Puts the next elements of the tensor into e->raw, in the dtype to be written. */
static int fill_block(struct exporting *e, const struct safetensors_tensor *tensor, uint64_t first,
	size_t count, size_t *bytes, struct err *err)
{
	int result = stays(tensor) ? ckpt_read_tensor(e->ckpt, tensor->name, first, count, e->raw, err)
							   : read_block(e, tensor, first, count, err);
	if (result == 0)
		*bytes = stays(tensor) ? 8 * count : convert(e, count);
	return result;
}

static int write_tensor(struct exporting *e, int fd, const char *name,
	const struct safetensors_tensor *tensor, struct err *err)
{
	uint64_t elements = 0;
	safetensors_elements(tensor->shape, tensor->dims, &elements);
	size_t most = stays(tensor) ? BLOCK / 2 : BLOCK, bytes;
	for (uint64_t first = 0; first < elements; first += most) {
		size_t count = elements - first < most ? (size_t)(elements - first) : most;
		int result = fill_block(e, tensor, first, count, &bytes, err);
		if (result != 0)
			return result;
		if (io_write_full(fd, e->raw, bytes) < 0)
			return write_fault("write", name, err);
		e->bytes += bytes;
		if (e->export->progress && e->export->progress(e->export->arg, bytes))
			return err_set(err, "export: interrupted");
	}
	return 0;
}

static int write_tensors(struct exporting *e, int fd, const char *name,
	const struct shard_group *group, struct err *err)
{
	int result = 0;
	for (size_t i = 0; result == 0 && i < group->count; i++)
		result = write_tensor(e, fd, name, tensor_of(e, group, i), err);
	return result;
}

/* The header of a file: the tensors of the group, in the new dtype. */
static int encode_header(struct exporting *e, const struct shard_group *group, char **prefix,
	size_t *size, struct err *err)
{
	static const struct safetensors_note format = { "format", "pt" };
	uint64_t data;
	AUTO_FREE struct safetensors_tensor *tensors = calloc(group->count, sizeof *tensors);
	if (!tensors)
		return err_set(err, "export: no memory");
	for (size_t i = 0; i < group->count; i++) {
		tensors[i] = *tensor_of(e, group, i);
		if (!stays(&tensors[i]))
			tensors[i].dtype = e->export->dtype;
	}
	return safetensors_encode(tensors, group->count, &format, 1, prefix, size, &data, err);
}

static int write_shard(struct exporting *e, size_t file, struct err *err)
{
	const struct shard_group *group = &e->groups[file];
	char name[64];
	AUTO_FREE char *prefix = NULL;
	size_t size;
	if (encode_header(e, group, &prefix, &size, err) < 0)
		return -1;
	for (size_t i = 0; i < group->count; i++)
		e->weight_map = record_set(e->weight_map, ckpt_tensor_at(e->ckpt, group->first + i)->name,
			json_string(file_name(e, file, name)));
	int fd = create(e, file_name(e, file, name), err);
	if (fd < 0)
		return -1;
	int result = io_write_full(fd, prefix, size) < 0 ? write_fault("write", name, err)
													 : write_tensors(e, fd, name, group, err);
	return finish(fd, name, result, err);
}

/* ---- index and configuration ---- */

static int write_index(struct exporting *e, struct err *err)
{
	json_t *index = json_pack("{s:{s:I}, s:O}", "metadata", "total_size", (json_int_t)e->bytes,
		"weight_map", e->weight_map);
	AUTO_FREE char *text = record_dump(index, JSON_INDENT(2));
	json_decref(index);
	return text ? write_text(e, "model.safetensors.index.json", text, err)
				: err_set(err, "export: no memory");
}

static int write_config(struct exporting *e, struct err *err)
{
	json_t *config = record_parse(e->export->config, strlen(e->export->config), 0,
		"export: the checkpoint's config.json", err);
	if (!config)
		return -1;
	if (!json_is_object(config)) {
		json_decref(config);
		return err_fail(err, EXIT_DATA, "export: the checkpoint's config.json is no JSON object");
	}
	config = record_set(config, "torch_dtype",
		json_string(e->export->dtype == SAFETENSORS_F32 ? "float32" : "bfloat16"));
	AUTO_FREE char *text = record_dump(config, JSON_INDENT(2));
	json_decref(config);
	return text ? write_text(e, "config.json", text, err) : err_set(err, "export: no memory");
}

static int plan(struct exporting *e, struct err *err)
{
	size_t count = ckpt_tensor_count(e->ckpt);
	AUTO_FREE uint64_t *bytes = calloc(count + 1, sizeof *bytes);
	AUTO_FREE int *writer = calloc(count + 1, sizeof *writer);
	e->groups = calloc(count + 1, sizeof *e->groups);
	if (!bytes || !writer || !e->groups)
		return err_set(err, "export: no memory");
	for (size_t i = 0; i < count; i++) {
		const struct safetensors_tensor *tensor = ckpt_tensor_at(e->ckpt, i);
		uint64_t elements = 0;
		if (!safetensors_is_float(tensor->dtype) && !stays(tensor))
			return err_fail(err, EXIT_DATA,
				"export: tensor %s has elements of type %s, which can't be converted", tensor->name,
				safetensors_dtype_name(tensor->dtype));
		safetensors_elements(tensor->shape, tensor->dims, &elements);
		bytes[i] =
			elements * safetensors_dtype_bits(stays(tensor) ? tensor->dtype : e->export->dtype) / 8;
	}
	e->files = shard_plan_group(bytes, writer, count, e->export->shard_size, e->groups);
	return e->files ? 0 : err_fail(err, EXIT_DATA, "export: the checkpoint has no tensors");
}

static int write_all(struct exporting *e, struct err *err)
{
	int result = plan(e, err);
	for (size_t file = 0; result == 0 && file < e->files; file++)
		result = write_shard(e, file, err);
	if (result == 0 && e->files > 1)
		result = write_index(e, err);
	if (result == 0)
		result = write_config(e, err);
	return result == 0 ? io_sync_dir(e->dirfd, err) : result;
}

int hf_export(struct ckpt *ckpt, int dirfd, const struct hf_export *export, size_t *files,
	uint64_t *bytes, struct err *err)
{
	AUTO_FREE float *values = malloc(BLOCK * sizeof *values);
	AUTO_FREE void *raw = malloc(BLOCK * sizeof *values);
	struct exporting e = { .ckpt = ckpt,
		.dirfd = dirfd,
		.export = export,
		.values = values,
		.raw = raw,
		.weight_map = json_object() };
	int result =
		values && raw && e.weight_map ? write_all(&e, err) : err_set(err, "export: no memory");
	*files = e.files;
	*bytes = e.bytes;
	free(e.groups);
	json_decref(e.weight_map);
	return result;
}
