/* SPDX-License-Identifier: Apache-2.0 */
/* Divides tensors and slices into groups, one file for each group. The contents of a file are
 * listed as pieces of the snapshot's memory, so that nothing is copied. */
#include "checkpoint/save/ckpt_files.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/format/safetensors.h"
#include "checkpoint/save/shard_plan.h"
#include "common/auto.h"

#define INDEX_NAME "model.safetensors.index.json"
#define CONFIG_NAME "config.json"

/* The model's and the optimizer's groups, of all parts. */
struct plan {
	const struct snapshot *snapshot;
	struct shard_group *model, *optimizer;
	size_t models, optimizers;
};

static int no_memory(struct err *err)
{
	return err_set(err, "checkpoint: no memory for the list of a snapshot's files");
}

/* ---- checks ---- */

static int parts_of(const struct snapshot *snapshot)
{
	return snapshot->parts == 0 ? 1 : snapshot->parts;
}

/* The writers of the items must be in ascending order, and each one of the parts. */
static int check_writer(const struct snapshot *snapshot, int writer, int before, const char *name,
	struct err *err)
{
	if (writer < before || writer >= parts_of(snapshot))
		return err_set(err, "checkpoint: %s of the snapshot has writer %d of %d after writer %d",
			name, writer, parts_of(snapshot), before);
	return 0;
}

static int check_tensors(const struct snapshot *snapshot, struct err *err)
{
	int before = 0;
	for (size_t i = 0; i < snapshot->tensor_count; i++) {
		const struct snapshot_tensor *tensor = &snapshot->tensors[i];
		uint64_t elements;
		if (!tensor->name || tensor->dims < 0 || tensor->dims > SAFETENSORS_DIMS
			|| safetensors_elements(tensor->shape, tensor->dims, &elements) < 0
			|| elements > INT64_MAX / 64)
			return err_set(err,
				"checkpoint: tensor %zu of the snapshot has no valid name and shape", i);
		if (check_writer(snapshot, tensor->writer, before, tensor->name, err) < 0)
			return -1;
		if (tensor->writer == snapshot->part && !tensor->data && elements > 0)
			return err_set(err, "checkpoint: tensor %s of the snapshot has no data", tensor->name);
		before = tensor->writer;
	}
	return 0;
}

static int check_slices(const struct snapshot *snapshot, struct err *err)
{
	int before = 0;
	for (size_t i = 0; i < snapshot->slice_count; i++) {
		const struct snapshot_slice *slice = &snapshot->slices[i];
		if (!slice->tensor || slice->count > INT64_MAX / 64 || slice->first > INT64_MAX / 64)
			return err_set(err, "checkpoint: slice %zu of the snapshot is not valid", i);
		if (check_writer(snapshot, slice->writer, before, slice->tensor, err) < 0)
			return -1;
		for (int s = 0; s < SNAPSHOT_STATES; s++)
			if (slice->writer == snapshot->part && !slice->state[s])
				return err_set(err, "checkpoint: slice %zu of the snapshot, of %s, has no data", i,
					slice->tensor);
		before = slice->writer;
	}
	return 0;
}

static int check_snapshot(const struct snapshot *snapshot, struct err *err)
{
	if (snapshot->at.step < 0 || !snapshot->model_json || !snapshot->tensors
		|| snapshot->tensor_count == 0)
		return err_set(err,
			"checkpoint: the snapshot has no step, tensors or configuration of the model");
	if (snapshot->parts < 0 || snapshot->part < 0 || snapshot->part >= parts_of(snapshot))
		return err_set(err, "checkpoint: the snapshot is part %d of %d", snapshot->part,
			snapshot->parts);
	if (check_tensors(snapshot, err) < 0)
		return -1;
	return check_slices(snapshot, err);
}

/* ---- groups ---- */

/* The bytes of the tensor in a model file. */
static uint64_t model_bytes(const struct snapshot_tensor *tensor)
{
	uint64_t elements = 0;
	safetensors_elements(tensor->shape, tensor->dims, &elements);
	return elements * safetensors_dtype_bits(tensor->dtype) / 8;
}

/* A tensor's weight is the larger of its sizes in the model and in the optimizer file, so that
 * slices of whole tensors form the same groups as their tensors. */
static uint64_t tensor_weight(const struct snapshot_tensor *tensor)
{
	uint64_t elements = 0, model = model_bytes(tensor);
	safetensors_elements(tensor->shape, tensor->dims, &elements);
	uint64_t optimizer = SNAPSHOT_STATES * sizeof(float) * elements;
	return model > optimizer ? model : optimizer;
}

/* Each array has one element more than needed, so that no allocation has size 0. */
static int make_plan(const struct snapshot *snapshot, struct plan *plan, struct err *err)
{
	size_t tensors = snapshot->tensor_count, slices = snapshot->slice_count,
		   most = tensors > slices ? tensors : slices;
	AUTO_FREE uint64_t *bytes = calloc(most + 1, sizeof *bytes);
	AUTO_FREE int *writer = calloc(most + 1, sizeof *writer);
	*plan = (struct plan) { .snapshot = snapshot,
		.model = calloc(tensors + 1, sizeof *plan->model),
		.optimizer = calloc(slices + 1, sizeof *plan->optimizer) };
	if (!bytes || !writer || !plan->model || !plan->optimizer)
		return no_memory(err);
	for (size_t i = 0; i < tensors; i++) {
		bytes[i] = tensor_weight(&snapshot->tensors[i]);
		writer[i] = snapshot->tensors[i].writer;
	}
	plan->models = shard_plan_group(bytes, writer, tensors, snapshot->shard_size, plan->model);
	for (size_t i = 0; i < slices; i++) {
		bytes[i] = SNAPSHOT_STATES * sizeof(float) * snapshot->slices[i].count;
		writer[i] = snapshot->slices[i].writer;
	}
	plan->optimizers =
		shard_plan_group(bytes, writer, slices, snapshot->shard_size, plan->optimizer);
	return 0;
}

/* ---- one file ---- */

/* Appends a file of `count` pieces, the first of which is `text`; takes ownership of `text`, also
 * on an error. NULL when out of memory. */
static struct ckpt_file *add_file(struct ckpt_files *files, const char *name,
	enum manifest_role role, char *text, size_t text_size, size_t count)
{
	struct shard_piece *pieces = calloc(count, sizeof *pieces);
	struct ckpt_file *more = realloc(files->files, (files->count + 1) * sizeof *more);
	if (more)
		files->files = more;
	if (!pieces || !more || !text) {
		free(pieces);
		free(text);
		return NULL;
	}
	struct ckpt_file *file = &more[files->count++];
	*file = (struct ckpt_file) { .role = role,
		.pieces = pieces,
		.count = count,
		.text = text,
		.size = text_size };
	snprintf(file->name, sizeof file->name, "%s", name);
	pieces[0] = (struct shard_piece) { text, text_size };
	return file;
}

static void put_piece(struct ckpt_file *file, size_t at, const void *data, uint64_t size)
{
	file->pieces[at] = (struct shard_piece) { data, size };
	file->size += size;
}

static char *shard_name(const char *what, size_t index, size_t count, char out[64])
{
	snprintf(out, 64, "%s-%05zu-of-%05zu.safetensors", what, index + 1, count);
	return out;
}

/* ---- the model ---- */

/* Wider elements come first, so that each tensor begins at a multiple of its element's size;
 * otherwise the order stays. */
static size_t order_tensors(const struct snapshot *snapshot, const struct shard_group *group,
	const struct snapshot_tensor **order)
{
	static const unsigned widths[] = { 64, 32, 16, 8 };
	size_t count = 0;
	for (size_t w = 0; w < sizeof widths / sizeof widths[0]; w++)
		for (size_t i = group->first; i < group->first + group->count; i++) {
			unsigned bits = safetensors_dtype_bits(snapshot->tensors[i].dtype);
			if ((bits < 8 ? 8 : bits) == widths[w])
				order[count++] = &snapshot->tensors[i];
		}
	return count;
}

static int add_model(const struct plan *plan, size_t index, struct ckpt_files *files,
	struct err *err)
{
	static const struct safetensors_note format = { "format", "pt" };
	const struct shard_group *group = &plan->model[index];
	AUTO_FREE const struct snapshot_tensor **order = calloc(group->count, sizeof *order);
	AUTO_FREE struct safetensors_tensor *tensors = calloc(group->count, sizeof *tensors);
	char *prefix, name[64];
	size_t prefix_size;
	uint64_t total;
	if (!order || !tensors)
		return no_memory(err);
	size_t count = order_tensors(plan->snapshot, group, order);
	for (size_t i = 0; i < count; i++) {
		tensors[i] = (struct safetensors_tensor) { .name = (char *)order[i]->name,
			.dtype = order[i]->dtype,
			.dims = order[i]->dims };
		memcpy(tensors[i].shape, order[i]->shape, sizeof tensors[i].shape);
	}
	if (safetensors_encode(tensors, count, &format, 1, &prefix, &prefix_size, &total, err) < 0)
		return -1;
	shard_name("model", index, plan->models, name);
	struct ckpt_file *file = add_file(files, name, MANIFEST_MODEL, prefix, prefix_size, count + 1);
	if (!file)
		return no_memory(err);
	for (size_t i = 0; i < count; i++)
		put_piece(file, i + 1, order[i]->data, tensors[i].end - tensors[i].begin);
	return 0;
}

/* Adds the tensors of one model file to the index; returns their bytes. */
static uint64_t map_tensors(const struct plan *plan, size_t index,
	const struct snapshot_tensor **order, json_t *map)
{
	char name[64];
	uint64_t total = 0;
	size_t count = order_tensors(plan->snapshot, &plan->model[index], order);
	shard_name("model", index, plan->models, name);
	for (size_t i = 0; i < count; i++) {
		json_object_set_new(map, order[i]->name, json_string(name));
		total += model_bytes(order[i]);
	}
	return total;
}

static int add_index(const struct plan *plan, struct ckpt_files *files, struct err *err)
{
	AUTO_FREE const struct snapshot_tensor **order =
		calloc(plan->snapshot->tensor_count, sizeof *order);
	json_t *map = json_object();
	uint64_t total = 0;
	for (size_t g = 0; order && g < plan->models; g++)
		total += map_tensors(plan, g, order, map);
	bool complete = json_object_size(map) == plan->snapshot->tensor_count;
	json_t *index =
		json_pack("{s:{s:I}, s:o}", "metadata", "total_size", (json_int_t)total, "weight_map", map);
	char *text = index ? json_dumps(index, JSON_INDENT(1)) : NULL;
	json_decref(index);
	if (!complete) {
		free(text);
		return err_set(err,
			"checkpoint: two tensors of the snapshot have one name, a name is not UTF-8, or no "
			"memory");
	}
	if (!add_file(files, INDEX_NAME, MANIFEST_INDEX, text, text ? strlen(text) : 0, 1))
		return no_memory(err);
	return 0;
}

static int add_config(const struct plan *plan, struct ckpt_files *files, struct err *err)
{
	const char *json = plan->snapshot->model_json;
	return add_file(files, CONFIG_NAME, MANIFEST_CONFIG, strdup(json), strlen(json), 1)
		? 0
		: no_memory(err);
}

/* ---- the optimizer ---- */

/* The slices of a shard as its metadata entry "slices": [[tensor, first, count], …]. */
static char *slices_text(const struct snapshot *snapshot, const struct shard_group *group,
	uint64_t *elements)
{
	json_t *slices = json_array();
	*elements = 0;
	for (size_t i = group->first; i < group->first + group->count; i++) {
		const struct snapshot_slice *slice = &snapshot->slices[i];
		json_array_append_new(slices,
			json_pack("[s, I, I]", slice->tensor, (json_int_t)slice->first,
				(json_int_t)slice->count));
		*elements += slice->count;
	}
	char *text = json_array_size(slices) == group->count ? json_dumps(slices, JSON_COMPACT) : NULL;
	json_decref(slices);
	return text;
}

static int add_optimizer(const struct plan *plan, size_t index, struct ckpt_files *files,
	struct err *err)
{
	const struct shard_group *group = &plan->optimizer[index];
	uint64_t elements, total;
	size_t prefix_size;
	char *prefix, name[64];
	AUTO_FREE char *text = slices_text(plan->snapshot, group, &elements);
	if (!text)
		return err_set(err, "checkpoint: no memory, or a tensor's name is not UTF-8");
	struct safetensors_note notes[] = { { "format", "pt" }, { "slices", text } };
	struct safetensors_tensor states[SNAPSHOT_STATES];
	for (int s = 0; s < SNAPSHOT_STATES; s++)
		states[s] = (struct safetensors_tensor) { .name = (char *)snapshot_state_name(s),
			.dtype = SAFETENSORS_F32,
			.dims = 1,
			.shape = { (int64_t)elements } };
	if (safetensors_encode(states, SNAPSHOT_STATES, notes, 2, &prefix, &prefix_size, &total, err)
		< 0)
		return -1;
	shard_name("optimizer", index, plan->optimizers, name);
	struct ckpt_file *file = add_file(files, name, MANIFEST_OPTIMIZER, prefix, prefix_size,
		1 + SNAPSHOT_STATES * group->count);
	if (!file)
		return no_memory(err);
	for (size_t s = 0; s < SNAPSHOT_STATES; s++)
		for (size_t i = 0; i < group->count; i++) {
			const struct snapshot_slice *slice = &plan->snapshot->slices[group->first + i];
			put_piece(file, 1 + s * group->count + i, slice->state[s],
				slice->count * sizeof(float));
		}
	return 0;
}

/* ---- all files ---- */

static int add_files(const struct plan *plan, struct ckpt_files *files, struct err *err)
{
	int part = plan->snapshot->part;
	for (size_t g = 0; g < plan->models; g++)
		if (plan->model[g].writer == part && add_model(plan, g, files, err) < 0)
			return -1;
	if (part == 0 && (add_index(plan, files, err) < 0 || add_config(plan, files, err) < 0))
		return -1;
	for (size_t g = 0; g < plan->optimizers; g++)
		if (plan->optimizer[g].writer == part && add_optimizer(plan, g, files, err) < 0)
			return -1;
	return 0;
}

int ckpt_files_plan(const struct snapshot *snapshot, struct ckpt_files *files, struct err *err)
{
	struct plan plan = { 0 };
	*files = (struct ckpt_files) { 0 };
	int result = check_snapshot(snapshot, err);
	if (result == 0)
		result = make_plan(snapshot, &plan, err);
	if (result == 0)
		result = add_files(&plan, files, err);
	free(plan.model);
	free(plan.optimizer);
	if (result < 0)
		ckpt_files_free(files);
	return result;
}

void ckpt_files_free(struct ckpt_files *files)
{
	for (size_t i = 0; i < files->count; i++) {
		free(files->files[i].pieces);
		free(files->files[i].text);
	}
	free(files->files);
	*files = (struct ckpt_files) { 0 };
}
