/* SPDX-License-Identifier: Apache-2.0 */
/* Divides tensors and slices into groups, one file for each group. The contents of a file are
 * listed as pieces of the snapshot's memory, so that nothing is copied. */
#include "config.h"
#include "checkpoint/save/ckpt_files.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/format/boxes.h"
#include "common/record.h"
#include "checkpoint/format/safetensors.h"
#include "checkpoint/save/shard_plan.h"
#include "common/auto.h"

#define INDEX_NAME "model.safetensors.index.json"
#define CONFIG_NAME "config.json"
#define VALUES_NAME "values.json"

/* The groups of all parts: of the model's tensors, of the optimizer's slices, and of the state's
 * tensors. */
struct plan {
	const struct snapshot *snapshot;
	size_t model_tensors;
	struct shard_group *model, *optimizer, *state;
	size_t models, optimizers, states;
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

static int check_tensor(const struct snapshot *snapshot, size_t i, struct err *err)
{
	const struct snapshot_tensor *tensor = &snapshot->tensors[i];
	const struct snapshot_tensor *before = i > 0 ? tensor - 1 : NULL;
	uint64_t elements;
	if (!tensor->name || tensor->dims < 0 || tensor->dims > SAFETENSORS_DIMS
		|| safetensors_elements(tensor->shape, tensor->dims, &elements) < 0
		|| elements > INT64_MAX / 64)
		return err_set(err, "checkpoint: tensor %zu of the snapshot has no valid name and shape",
			i);
	if (before && before->state && !tensor->state)
		return err_set(err, "checkpoint: tensor %s of the snapshot's model comes after its state",
			tensor->name);
	if (check_writer(snapshot, tensor->writer,
			before && before->state == tensor->state ? before->writer : 0, tensor->name, err)
		< 0)
		return -1;
	if (tensor->writer == snapshot->part && !tensor->data && elements > 0)
		return err_set(err, "checkpoint: tensor %s of the snapshot has no data", tensor->name);
	if (tensor->box && !tensor->state)
		return err_set(err, "checkpoint: tensor %s of the snapshot's model is a box", tensor->name);
	return 0;
}

/* Each tensor is there once, whole or in boxes: a reader would refuse anything else. */
static int check_boxes(const struct snapshot *snapshot, struct err *err)
{
	struct err why;
	if (boxes_check_tensors(snapshot->tensors, snapshot->tensor_count, &why) < 0)
		return err_set(err, "checkpoint: the snapshot can't be saved: %s", why.text);
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
	if (snapshot->at.step < 0
		|| (snapshot->tensor_count > 0 ? !snapshot->tensors : !snapshot->values_json))
		return err_set(err, "checkpoint: the snapshot has no step, or neither tensors nor values");
	if (snapshot->parts < 0 || snapshot->part < 0 || snapshot->part >= parts_of(snapshot))
		return err_set(err, "checkpoint: the snapshot is part %d of %d", snapshot->part,
			snapshot->parts);
	for (size_t i = 0; i < snapshot->tensor_count; i++)
		if (check_tensor(snapshot, i, err) < 0)
			return -1;
	return check_boxes(snapshot, err) < 0 ? -1 : check_slices(snapshot, err);
}

/* ---- groups ---- */

/* The bytes of the tensor in its file. */
static uint64_t tensor_bytes(const struct snapshot_tensor *tensor)
{
	uint64_t elements = 0;
	safetensors_elements(tensor->shape, tensor->dims, &elements);
	return elements * safetensors_dtype_bits(tensor->dtype) / 8;
}

/* The weight of a tensor of the model is the larger of its sizes in the model and in the optimizer
 * file, so that slices of whole tensors form the same groups as their tensors. */
static uint64_t tensor_weight(const struct snapshot_tensor *tensor)
{
	uint64_t elements = 0, bytes = tensor_bytes(tensor);
	safetensors_elements(tensor->shape, tensor->dims, &elements);
	uint64_t optimizer = tensor->state ? 0 : SNAPSHOT_STATES * sizeof(float) * elements;
	return bytes > optimizer ? bytes : optimizer;
}

static size_t count_model(const struct snapshot *snapshot)
{
	size_t count = 0;
	while (count < snapshot->tensor_count && !snapshot->tensors[count].state)
		count++;
	return count;
}

/* Each array has one element more than needed, so that no allocation has size 0. */
static int make_plan(const struct snapshot *snapshot, struct plan *plan, struct err *err)
{
	size_t tensors = snapshot->tensor_count, slices = snapshot->slice_count,
		   most = tensors > slices ? tensors : slices, model = count_model(snapshot);
	AUTO_FREE uint64_t *bytes = calloc(most + 1, sizeof *bytes);
	AUTO_FREE int *writer = calloc(most + 1, sizeof *writer);
	*plan = (struct plan) { .snapshot = snapshot,
		.model_tensors = model,
		.model = calloc(model + 1, sizeof *plan->model),
		.optimizer = calloc(slices + 1, sizeof *plan->optimizer),
		.state = calloc(tensors - model + 1, sizeof *plan->state) };
	if (!bytes || !writer || !plan->model || !plan->optimizer || !plan->state)
		return no_memory(err);
	for (size_t i = 0; i < tensors; i++) {
		bytes[i] = tensor_weight(&snapshot->tensors[i]);
		writer[i] = snapshot->tensors[i].writer;
	}
	uint64_t limit = snapshot->shard_size;
	plan->models = shard_plan_group(bytes, writer, model, limit, plan->model);
	plan->states =
		shard_plan_group(bytes + model, writer + model, tensors - model, limit, plan->state);
	for (size_t g = 0; g < plan->states; g++)
		plan->state[g].first += model;
	for (size_t i = 0; i < slices; i++) {
		bytes[i] = SNAPSHOT_STATES * sizeof(float) * snapshot->slices[i].count;
		writer[i] = snapshot->slices[i].writer;
	}
	plan->optimizers = shard_plan_group(bytes, writer, slices, limit, plan->optimizer);
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

/* ---- tensors ---- */

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

/* A box is stored under its tensor's name; where the file has several of one tensor (`ranges_too`),
 * with its ranges, such as "w[0:4,8:16]". */
static char *entry_name(const struct snapshot_tensor *tensor, bool ranges_too)
{
	char ranges[SAFETENSORS_DIMS * 44 + 3] = "";
	size_t used = 0;
	char *name = NULL;
	for (int d = 0; ranges_too && tensor->box && d < tensor->dims; d++)
		used += (size_t)snprintf(ranges + used, sizeof ranges - used, "%c%" PRId64 ":%" PRId64,
			d == 0 ? '[' : ',', tensor->box->offset[d], tensor->box->offset[d] + tensor->shape[d]);
	if (ranges_too && tensor->box)
		snprintf(ranges + used, sizeof ranges - used, used > 0 ? "]" : "[]");
	return asprintf(&name, "%s%s", tensor->name, ranges) < 0 ? NULL : name;
}

/* The metadata entry "boxes": {ENTRY: {"tensor": NAME, "shape": […], "offset": […]}, …}. */
static char *boxes_text(const struct snapshot_tensor *const *order,
	const struct safetensors_tensor *entries, size_t count)
{
	json_t *boxes = json_object();
	size_t number = 0;
	for (size_t i = 0; i < count; i++) {
		const struct snapshot_tensor *tensor = order[i];
		if (!tensor->box)
			continue;
		number++;
		boxes = record_set(boxes, entries[i].name,
			json_pack("{s:s, s:o, s:o}", "tensor", tensor->name, "shape",
				record_integers(tensor->box->shape, tensor->dims), "offset",
				record_integers(tensor->box->offset, tensor->dims)));
	}
	char *text = json_object_size(boxes) == number ? record_dump(boxes, JSON_COMPACT) : NULL;
	json_decref(boxes);
	return text;
}

/* The metadata entry by which PyTorch's HuggingFaceStorageReader finds the boxes of several files:
 * {ENTRY: {"saved_offsets": […]}, …}, of all entries
 * (torch/distributed/checkpoint/_hf_utils.py, from PyTorch 2.8 on). */
static char *sharding_text(const struct snapshot_tensor *const *order, size_t count)
{
	static const int64_t zeros[SAFETENSORS_DIMS];
	json_t *entries = json_object();
	for (size_t i = 0; i < count; i++)
		entries = record_set(entries, order[i]->name,
			json_pack("{s:o}", "saved_offsets",
				record_integers(order[i]->box ? order[i]->box->offset : zeros, order[i]->dims)));
	char *text = json_object_size(entries) == count ? record_dump(entries, JSON_COMPACT) : NULL;
	json_decref(entries);
	return text;
}

/* Whether two of the names are the same; -1: no memory, or one is not UTF-8. */
static int names_collide(const struct safetensors_tensor *entries, size_t count)
{
	json_t *names = json_object();
	for (size_t i = 0; i < count; i++)
		names = record_set(names, entries[i].name, json_true());
	const int collide = names ? json_object_size(names) < count : -1;
	json_decref(names);
	return collide;
}

static int name_entries(const struct snapshot_tensor *const *order,
	struct safetensors_tensor *entries, size_t count, bool ranges_too, struct err *err)
{
	for (size_t i = 0; i < count; i++) {
		free(entries[i].name);
		entries[i].name = entry_name(order[i], ranges_too);
		if (!entries[i].name)
			return no_memory(err);
	}
	return 0;
}

/* Encodes the header of a file that has these tensors; sets their places in `entries`. */
static int encode_header(const struct snapshot_tensor *const *order,
	struct safetensors_tensor *entries, size_t count, char **prefix, size_t *prefix_size,
	struct err *err)
{
	uint64_t total;
	bool boxes = false;
	for (size_t i = 0; i < count; i++) {
		entries[i] =
			(struct safetensors_tensor) { .dtype = order[i]->dtype, .dims = order[i]->dims };
		memcpy(entries[i].shape, order[i]->shape, sizeof entries[i].shape);
		boxes |= order[i]->box != NULL;
	}
	if (name_entries(order, entries, count, false, err) < 0)
		return -1;
	const int several = boxes ? names_collide(entries, count) : 0;
	if (several > 0 && name_entries(order, entries, count, true, err) < 0)
		return -1;
	AUTO_FREE char *text = boxes ? boxes_text(order, entries, count) : NULL;
	AUTO_FREE char *sharding = boxes && !several ? sharding_text(order, count) : NULL;
	if (boxes && (several < 0 || !text || (!several && !sharding) || names_collide(entries, count)))
		return err_set(err,
			"checkpoint: a tensor has the name of a box, a name is not UTF-8, or no memory");
	struct safetensors_note notes[] = { { "format", "pt" }, { "boxes", text },
		{ "DCP_SHARDING_INFO", sharding } };
	return safetensors_encode(entries, count, notes,
		sharding    ? 3
			: boxes ? 2
					: 1,
		prefix, prefix_size, &total, err);
}

/* Adds file `index` of the `files_total` of that role. */
static int add_tensors(const struct plan *plan, enum manifest_role role,
	const struct shard_group *group, size_t index, size_t files_total, struct ckpt_files *files,
	struct err *err)
{
	AUTO_FREE const struct snapshot_tensor **order = calloc(group->count, sizeof *order);
	AUTO_FREE struct safetensors_tensor *entries = calloc(group->count, sizeof *entries);
	char *prefix, name[64];
	size_t prefix_size;
	if (!order || !entries)
		return no_memory(err);
	size_t count = order_tensors(plan->snapshot, group, order);
	int result = encode_header(order, entries, count, &prefix, &prefix_size, err);
	for (size_t i = 0; i < count; i++)
		free(entries[i].name);
	if (result < 0)
		return -1;
	shard_name(manifest_role_name(role), index, files_total, name);
	struct ckpt_file *file = add_file(files, name, role, prefix, prefix_size, count + 1);
	if (!file)
		return no_memory(err);
	for (size_t i = 0; i < count; i++)
		put_piece(file, i + 1, order[i]->data, entries[i].end - entries[i].begin);
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
		total += tensor_bytes(order[i]);
	}
	return total;
}

static int add_index(const struct plan *plan, struct ckpt_files *files, struct err *err)
{
	AUTO_FREE const struct snapshot_tensor **order = calloc(plan->model_tensors, sizeof *order);
	json_t *map = json_object();
	uint64_t total = 0;
	for (size_t g = 0; order && g < plan->models; g++)
		total += map_tensors(plan, g, order, map);
	bool complete = json_object_size(map) == plan->model_tensors;
	json_t *index =
		json_pack("{s:{s:I}, s:o}", "metadata", "total_size", (json_int_t)total, "weight_map", map);
	char *text = record_dump(index, JSON_INDENT(1));
	json_decref(index);
	if (!complete) {
		free(text);
		return err_set(err, "checkpoint: a tensor's name is not UTF-8, or no memory");
	}
	if (!add_file(files, INDEX_NAME, MANIFEST_INDEX, text, text ? strlen(text) : 0, 1))
		return no_memory(err);
	return 0;
}

/* Adds a file that is a text of the snapshot; no file if that is NULL. */
static int add_text(const char *name, enum manifest_role role, const char *text,
	struct ckpt_files *files, struct err *err)
{
	return !text || add_file(files, name, role, strdup(text), strlen(text), 1) ? 0 : no_memory(err);
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
		slices = record_append(slices,
			json_pack("[s, I, I]", slice->tensor, (json_int_t)slice->first,
				(json_int_t)slice->count));
		*elements += slice->count;
	}
	char *text = json_array_size(slices) == group->count ? record_dump(slices, JSON_COMPACT) : NULL;
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
	const struct snapshot *snapshot = plan->snapshot;
	for (size_t g = 0; g < plan->models; g++)
		if (plan->model[g].writer == snapshot->part
			&& add_tensors(plan, MANIFEST_MODEL, &plan->model[g], g, plan->models, files, err) < 0)
			return -1;
	if (snapshot->part == 0
		&& ((plan->models > 0 && add_index(plan, files, err) < 0)
			|| add_text(CONFIG_NAME, MANIFEST_CONFIG, snapshot->model_json, files, err) < 0
			|| add_text(VALUES_NAME, MANIFEST_VALUES, snapshot->values_json, files, err) < 0))
		return -1;
	for (size_t g = 0; g < plan->optimizers; g++)
		if (plan->optimizer[g].writer == snapshot->part && add_optimizer(plan, g, files, err) < 0)
			return -1;
	for (size_t g = 0; g < plan->states; g++)
		if (plan->state[g].writer == snapshot->part
			&& add_tensors(plan, MANIFEST_STATE, &plan->state[g], g, plan->states, files, err) < 0)
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
	free(plan.state);
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
