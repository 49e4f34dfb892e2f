/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a GPT-2 from Hugging Face's files. Tensor names come with the prefix "transformer."
 * (GPT2LMHeadModel) or without it (GPT2Model). Buffers of older versions are ignored, and so is a
 * head that repeats the token embedding. Any other tensor must be one that a GPT-2 has. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/convert/model_source.h"
#include "common/record.h"
#include "checkpoint/format/safetensors.h"
#include "common/auto.h"
#include "common/io.h"

#define CONFIG_NAME "config.json"
#define SINGLE_NAME "model.safetensors"
#define INDEX_NAME "model.safetensors.index.json"
#define PICKLE_NAME "pytorch_model.bin"
#define TEXT_LIMIT (64u << 20)
#define PREFIX "transformer."
#define HEAD "lm_head.weight"

struct shard_file {
	char *name;
	int fd;
	struct safetensors *header;
};

struct hf_model {
	struct model_source source; /* must be the first member */
	char *path;
	int fd;
	struct shard_file *files;
	size_t count;
};

static void close_model(struct model_source *source)
{
	struct hf_model *model = (struct hf_model *)source;
	for (size_t i = 0; i < model->count; i++) {
		free(model->files[i].name);
		if (model->files[i].fd >= 0)
			close(model->files[i].fd);
		safetensors_destroy(model->files[i].header);
	}
	if (model->fd >= 0)
		close(model->fd);
	free(model->files);
	free(model->path);
	free(model);
}

/* ---- files ---- */

static int read_fault(const struct hf_model *model, const char *name, struct err *err)
{
	return err_fail(err, io_status_or(errno, EXIT_DATA), "model: couldn't read %s/%s: %m",
		model->path, name);
}

static int read_at(const struct hf_model *model, const struct shard_file *file, uint64_t offset,
	void *out, size_t size, struct err *err)
{
	ssize_t n = io_read_at(file->fd, out, size, (off_t)offset);
	if (n < 0)
		return read_fault(model, file->name, err);
	if ((size_t)n != size)
		return err_fail(err, EXIT_DATA, "model: %s/%s ends too early", model->path, file->name);
	return 0;
}

static int read_header(const struct hf_model *model, struct shard_file *file, struct err *err)
{
	struct stat st;
	char first[8];
	uint64_t size;
	file->fd = openat(model->fd, file->name, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (file->fd < 0 || fstat(file->fd, &st) < 0)
		return read_fault(model, file->name, err);
	if (!S_ISREG(st.st_mode) || st.st_size < 8)
		return err_fail(err, EXIT_DATA, "model: %s/%s is no safetensors file", model->path,
			file->name);
	if (read_at(model, file, 0, first, sizeof first, err) < 0)
		return -1;
	if (safetensors_prefix_size(first, (uint64_t)st.st_size, &size, err) < 0)
		return err_prefix(err, "%s/%s", model->path, file->name);
	AUTO_FREE char *bytes = malloc((size_t)size);
	if (!bytes)
		return err_set(err, "model: no memory for a header of %" PRIu64 " bytes", size);
	if (read_at(model, file, 0, bytes, (size_t)size, err) < 0)
		return -1;
	file->header = safetensors_parse(bytes, (size_t)size, (uint64_t)st.st_size, err);
	return file->header ? 0 : err_prefix(err, "%s/%s", model->path, file->name);
}

static int add_file(struct hf_model *model, const char *name, struct err *err)
{
	for (size_t i = 0; i < model->count; i++)
		if (strcmp(model->files[i].name, name) == 0)
			return 0;
	if (!name[0] || strchr(name, '/') || name[0] == '.')
		return err_fail(err, EXIT_DATA,
			"model: " INDEX_NAME " names a file \"%s\", which is no plain name", name);
	struct shard_file *files = realloc(model->files, (model->count + 1) * sizeof *files);
	if (!files)
		return err_set(err, "model: no memory");
	model->files = files;
	files[model->count] = (struct shard_file) { .name = strdup(name), .fd = -1 };
	if (!files[model->count].name)
		return err_set(err, "model: no memory");
	return read_header(model, &files[model->count++], err);
}

static int add_indexed(struct hf_model *model, const char *text, size_t size, struct err *err)
{
	const char *tensor;
	json_t *file, *index = record_parse(text, size, 0, "model: " INDEX_NAME, err),
				  *map = json_object_get(index, "weight_map");
	int result = index ? 0 : -1;
	if (index && !json_is_object(map))
		result =
			err_fail(err, EXIT_DATA, "model: %s/" INDEX_NAME " has no weight_map", model->path);
	json_object_foreach(map, tensor, file)
	{
		if (result < 0)
			break;
		result = json_is_string(file)
			? add_file(model, json_string_value(file), err)
			: err_fail(err, EXIT_DATA, "model: " INDEX_NAME " names no file for tensor %s", tensor);
	}
	json_decref(index);
	return result;
}

static bool has(const struct hf_model *model, const char *name)
{
	return faccessat(model->fd, name, F_OK, 0) == 0;
}

static int open_files(struct hf_model *model, struct err *err)
{
	AUTO_FREE char *text = NULL;
	size_t size;
	if (has(model, SINGLE_NAME))
		return add_file(model, SINGLE_NAME, err);
	if (has(model, INDEX_NAME))
		return io_read_file(model->fd, INDEX_NAME, TEXT_LIMIT, &text, &size, err) < 0
			? err_prefix(err, "%s", model->path)
			: add_indexed(model, text, size, err);
	if (has(model, PICKLE_NAME) || has(model, PICKLE_NAME ".index.json"))
		return err_fail(err, EXIT_DATA,
			"model: %s has its weights in " PICKLE_NAME
			", a pickle, which is a program rather than data; convert it where you trust it: "
			"python3 -c \"from transformers import GPT2LMHeadModel as M; "
			"M.from_pretrained('%s').save_pretrained('NEW', safe_serialization=True)\"",
			model->path, model->path);
	return err_fail(err, EXIT_DATA, "model: %s has neither " SINGLE_NAME " nor " INDEX_NAME,
		model->path);
}

/* ---- tensors ---- */

/* Finds the tensor `name`, with or without the prefix. */
static const struct safetensors_tensor *find(const struct hf_model *model, const char *name,
	const struct shard_file **file)
{
	const char *bare =
		strncmp(name, PREFIX, sizeof PREFIX - 1) == 0 ? name + sizeof PREFIX - 1 : name;
	for (size_t i = 0; i < model->count; i++) {
		const struct safetensors_tensor *tensor = safetensors_find(model->files[i].header, name);
		if (!tensor)
			tensor = safetensors_find(model->files[i].header, bare);
		if (tensor) {
			*file = &model->files[i];
			return tensor;
		}
	}
	return NULL;
}

static int read_floats(struct hf_model *model, const struct shard_file *file,
	const struct safetensors_tensor *found, uint64_t elements, float *out, struct err *err)
{
	size_t bytes = (size_t)(found->end - found->begin);
	uint64_t offset = file->header->data_start + found->begin;
	if (found->dtype == SAFETENSORS_F32)
		return read_at(model, file, offset, out, bytes, err);
	AUTO_FREE char *raw = malloc(bytes);
	if (!raw)
		return err_set(err, "model: no memory for tensor %s", found->name);
	if (read_at(model, file, offset, raw, bytes, err) < 0)
		return -1;
	safetensors_to_fp32(found->dtype, raw, (size_t)elements, out);
	return 0;
}

static int read_tensor(struct model_source *source, const struct gpt2_tensor *tensor, float *out,
	struct err *err)
{
	struct hf_model *model = (struct hf_model *)source;
	const struct shard_file *file;
	const struct safetensors_tensor *found = find(model, tensor->name, &file);
	return read_floats(model, file, found, tensor->elements, out, err);
}

/* ---- the tensors that must be present, and no others ---- */

static int check_tensor(const struct hf_model *model, const struct gpt2_tensor *want,
	struct err *err)
{
	const struct shard_file *file;
	const struct safetensors_tensor *found = find(model, want->name, &file);
	if (!found)
		return err_fail(err, EXIT_DATA,
			"model: %s has no tensor %s, which a GPT-2 of its config.json has", model->path,
			want->name);
	if (!safetensors_is_float(found->dtype))
		return err_fail(err, EXIT_DATA,
			"model: tensor %s is of type %s; F32, F16 and BF16 can be read", found->name,
			safetensors_dtype_name(found->dtype));
	if (found->dims != want->dims || found->shape[0] != want->shape[0]
		|| (want->dims == 2 && found->shape[1] != want->shape[1]))
		return err_fail(err, EXIT_DATA,
			"model: tensor %s does not have the shape that config.json gives it", found->name);
	return 0;
}

static bool ends_with(const char *name, const char *tail)
{
	size_t length = strlen(name), n = strlen(tail);
	return length >= n && strcmp(name + length - n, tail) == 0;
}

static bool is_wanted(const struct gpt2_tensor *all, size_t count, const char *name)
{
	for (size_t i = 0; i < count; i++)
		if (strcmp(all[i].name, name) == 0 || strcmp(all[i].name + sizeof PREFIX - 1, name) == 0)
			return true;
	return false;
}

/* The head's weights must be those of the token embedding. */
static int check_head(struct hf_model *model, const struct shard_file *file,
	const struct safetensors_tensor *head, const struct gpt2_tensor *wte, struct err *err)
{
	AUTO_FREE float *a = malloc((size_t)wte->elements * sizeof *a),
					*b = malloc((size_t)wte->elements * sizeof *b);
	if (!a || !b)
		return err_set(err, "model: no memory for tensor %s", wte->name);
	bool same = safetensors_is_float(head->dtype) && head->dims == 2
		&& head->shape[0] == wte->shape[0] && head->shape[1] == wte->shape[1];
	if (same
		&& (read_floats(model, file, head, wte->elements, a, err) < 0
			|| read_tensor(&model->source, wte, b, err) < 0))
		return -1;
	if (same && memcmp(a, b, (size_t)wte->elements * sizeof *a) == 0)
		return 0;
	return err_fail(err, EXIT_DATA,
		"model: " HEAD
		" is not the token embedding: muster-train only has models with a tied head");
}

static int check_file(struct hf_model *model, const struct shard_file *file,
	const struct gpt2_tensor *all, size_t count, struct err *err)
{
	for (size_t t = 0; t < file->header->count; t++) {
		const struct safetensors_tensor *tensor = &file->header->tensors[t];
		if (is_wanted(all, count, tensor->name) || ends_with(tensor->name, ".attn.bias")
			|| ends_with(tensor->name, ".attn.masked_bias"))
			continue;
		if (strcmp(tensor->name, HEAD) != 0)
			return err_fail(err, EXIT_DATA, "model: %s/%s has a tensor %s, which no GPT-2 has",
				model->path, file->name, tensor->name);
		if (check_head(model, file, tensor, &all[0], err) < 0)
			return -1;
	}
	return 0;
}

static int check_tensors(struct hf_model *model, struct err *err)
{
	AUTO_FREE struct gpt2_tensor *all = NULL;
	size_t count;
	if (gpt2_tensors(&model->source.config, &all, &count, err) < 0)
		return -1;
	for (size_t i = 0; i < count; i++)
		if (check_tensor(model, &all[i], err) < 0)
			return -1;
	for (size_t i = 0; i < model->count; i++)
		if (check_file(model, &model->files[i], all, count, err) < 0)
			return -1;
	return 0;
}

static int open_model(struct hf_model *model, struct err *err)
{
	AUTO_FREE char *text = NULL;
	size_t size;
	model->fd = open(model->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (model->fd < 0)
		return err_fail(err, io_status_or(errno, EXIT_DATA), "model: couldn't open %s: %m",
			model->path);
	if (io_read_file(model->fd, CONFIG_NAME, TEXT_LIMIT, &text, &size, err) < 0
		|| gpt2_config_parse(text, size, &model->source.config, err) < 0)
		return err_prefix(err, "model: %s", model->path);
	return open_files(model, err) < 0 ? -1 : check_tensors(model, err);
}

struct model_source *hf_model_open(const char *path, struct err *err)
{
	struct hf_model *model = calloc(1, sizeof *model);
	if (model)
		model->path = strdup(path);
	if (!model || !model->path) {
		free(model);
		err_set(err, "model: no memory");
		return NULL;
	}
	model->fd = -1;
	model->source.read = read_tensor;
	model->source.close = close_model;
	if (open_model(model, err) == 0)
		return &model->source;
	close_model(&model->source);
	return NULL;
}
