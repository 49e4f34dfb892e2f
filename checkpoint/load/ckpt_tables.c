/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of an open checkpoint: they map (tensor, element range) to positions in files.
 * Contents that contradict each other count as damage, just like a wrong hash. */
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "common/record.h"
#include "checkpoint/load/ckpt_private.h"

/* ---- tensors ---- */

static bool has_tensors(enum manifest_role role)
{
	return role == MANIFEST_MODEL || role == MANIFEST_STATE;
}

static int get_integers(const json_t *array, int count, int64_t *out)
{
	if (json_array_size(array) != (size_t)count)
		return -1;
	for (int d = 0; d < count; d++) {
		if (!record_in_range(json_array_get(array, (size_t)d), 0, INT64_MAX))
			return -1;
		out[d] = json_integer_value(json_array_get(array, (size_t)d));
	}
	return 0;
}

/* A tensor of a file: a box where "boxes" lists it, else a whole one. */
static int describe_box(const struct entry *entry, const json_t *boxes, struct box *box,
	struct err *err)
{
	const struct safetensors_tensor *tensor = entry->tensor;
	const json_t *listed = json_object_get(boxes, tensor->name);
	*box = (struct box) { .tensor = tensor->name,
		.dtype = tensor->dtype,
		.dims = tensor->dims,
		.owner = entry };
	memcpy(box->shape, tensor->shape, sizeof box->shape);
	memcpy(box->size, tensor->shape, sizeof box->size);
	if (!listed)
		return 0;
	box->tensor = json_string_value(json_object_get(listed, "tensor"));
	if (!box->tensor || safetensors_dtype_bits(tensor->dtype) % 8
		|| get_integers(json_object_get(listed, "shape"), box->dims, box->shape) < 0
		|| get_integers(json_object_get(listed, "offset"), box->dims, box->offset) < 0)
		return ckpt_damaged(err, "the box %s of %s is not valid", tensor->name,
			entry->source->shard.file->name);
	return 0;
}

static int add_boxes(struct ckpt *ckpt, struct source *source, struct err *err)
{
	size_t listed = 0;
	for (size_t t = 0; t < source->header->count; t++) {
		struct entry *entry = &ckpt->entries[ckpt->entry_count];
		*entry = (struct entry) { &source->header->tensors[t], source };
		listed += json_object_get(source->boxes, entry->tensor->name) != NULL;
		int result = describe_box(entry, source->boxes, &ckpt->boxes[ckpt->entry_count++], err);
		if (result < 0)
			return result;
	}
	return listed == json_object_size(source->boxes)
		? 0
		: ckpt_damaged(err, "%s lists boxes that it does not have", source->shard.file->name);
}

static int parse_boxes(struct source *source, struct err *err)
{
	const char *text = safetensors_note(source->header, "boxes");
	if (source->shard.file->role != MANIFEST_STATE || !text)
		return 0;
	source->boxes = record_parse(text, strlen(text), JSON_REJECT_DUPLICATES,
		"checkpoint: the list of boxes", err);
	if (!source->boxes && err->status != EXIT_DATA)
		return -1;
	return json_is_object(source->boxes)
		? 0
		: ckpt_damaged(err, "%s does not say which boxes it holds", source->shard.file->name);
}

/* Adds the tensor that has these boxes. */
static int add_place(struct ckpt *ckpt, const struct box *boxes, size_t count, struct err *err)
{
	const struct entry *entry = boxes[0].owner;
	uint64_t elements = 0;
	struct place place = { .tensor = { .name = (char *)(uintptr_t)boxes->tensor,
							   .dtype = boxes->dtype,
							   .dims = boxes->dims },
		.role = entry->source->shard.file->role,
		.boxes = boxes,
		.box_count = count };
	memcpy(place.tensor.shape, boxes->shape, sizeof place.tensor.shape);
	safetensors_elements(boxes->shape, boxes->dims, &elements);
	if (__builtin_mul_overflow(elements, safetensors_dtype_bits(boxes->dtype), &elements))
		return ckpt_damaged(err, "tensor %s has more bits than 64 bits count", boxes->tensor);
	place.tensor.end = elements / 8;
	ckpt->places[ckpt->place_count++] = place;
	return 0;
}

static int index_tensors(struct ckpt *ckpt, struct err *err)
{
	const struct manifest *manifest = ckpt->manifest;
	size_t total = 0;
	for (size_t i = 0; i < manifest->file_count; i++)
		if (has_tensors(manifest->files[i].role))
			total += ckpt->sources[i].header->count;
	ckpt->entries = calloc(total + 1, sizeof *ckpt->entries);
	ckpt->boxes = calloc(total + 1, sizeof *ckpt->boxes);
	ckpt->places = calloc(total + 1, sizeof *ckpt->places);
	if (!ckpt->entries || !ckpt->boxes || !ckpt->places)
		return err_set(err, "checkpoint: no memory");
	int result = 0;
	for (size_t i = 0; result == 0 && i < manifest->file_count; i++)
		if (has_tensors(manifest->files[i].role)) {
			result = parse_boxes(&ckpt->sources[i], err);
			if (result == 0)
				result = add_boxes(ckpt, &ckpt->sources[i], err);
		}
	if (result == 0 && boxes_check(ckpt->boxes, total, err) < 0)
		result = CKPT_DAMAGED;
	for (size_t i = 0, next; result == 0 && i < total; i = next) {
		for (next = i + 1;
			 next < total && strcmp(ckpt->boxes[next].tensor, ckpt->boxes[i].tensor) == 0;)
			next++;
		result = add_place(ckpt, &ckpt->boxes[i], next - i, err);
	}
	return result;
}

static int by_role_and_name(const void *a, const void *b)
{
	const struct place *x = a, *y = b;
	if (x->role != y->role)
		return x->role == MANIFEST_MODEL ? -1 : 1;
	return strcmp(x->tensor.name, y->tensor.name);
}

/* Brings the tensors of the model to the front. */
static void order_places(struct ckpt *ckpt)
{
	qsort(ckpt->places, ckpt->place_count, sizeof *ckpt->places, by_role_and_name);
	while (ckpt->model_count < ckpt->place_count
		&& ckpt->places[ckpt->model_count].role == MANIFEST_MODEL)
		ckpt->model_count++;
}

struct place *ckpt_place_find(const struct ckpt *ckpt, const char *name)
{
	struct place key = { .tensor.name = (char *)(uintptr_t)name, .role = MANIFEST_MODEL };
	struct place *found =
		bsearch(&key, ckpt->places, ckpt->place_count, sizeof key, by_role_and_name);
	if (found)
		return found;
	key.role = MANIFEST_STATE;
	return bsearch(&key, ckpt->places, ckpt->place_count, sizeof key, by_role_and_name);
}

uint64_t ckpt_elements(const struct safetensors_tensor *tensor)
{
	uint64_t elements = 0;
	safetensors_elements(tensor->shape, tensor->dims, &elements);
	return elements;
}

/* ---- the optimizer's slices ---- */

/* Appends one entry of "slices"; adds its element count to *base. */
static int add_slice(struct ckpt *ckpt, struct source *source, const json_t *entry, uint64_t *base,
	struct err *err)
{
	const char *name = json_string_value(json_array_get(entry, 0));
	const json_t *first = json_array_get(entry, 1), *count = json_array_get(entry, 2);
	struct place *place = name ? ckpt_place_find(ckpt, name) : NULL;
	if (!place || place->role != MANIFEST_MODEL || !json_is_integer(first)
		|| !json_is_integer(count) || json_integer_value(first) < 0
		|| json_integer_value(count) < 0)
		return ckpt_damaged(err, "a slice of %s is not valid", source->shard.file->name);
	struct slice slice = { &place->tensor, (uint64_t)json_integer_value(first),
		(uint64_t)json_integer_value(count), *base, source };
	uint64_t elements = ckpt_elements(&place->tensor);
	if (slice.first > elements || slice.count > elements - slice.first
		|| __builtin_add_overflow(*base, slice.count, base))
		return ckpt_damaged(err, "a slice of tensor %s is out of range", name);
	ckpt->slices[ckpt->slice_count++] = slice;
	return 0;
}

/* The flat arrays must have exactly as many elements as the slices. */
static int check_states(const struct source *source, uint64_t elements, struct err *err)
{
	for (int s = 0; s < SNAPSHOT_STATES; s++) {
		const struct safetensors_tensor *state =
			safetensors_find(source->header, snapshot_state_name(s));
		if (!state || state->dtype != SAFETENSORS_F32 || ckpt_elements(state) != elements)
			return ckpt_damaged(err, "%s has no array %s of %" PRIu64 " elements in F32",
				source->shard.file->name, snapshot_state_name(s), elements);
	}
	return 0;
}

static int add_slices(struct ckpt *ckpt, struct source *source, struct err *err)
{
	const char *text = safetensors_note(source->header, "slices");
	json_t *slices =
		text ? record_parse(text, strlen(text), 0, "checkpoint: the list of slices", err) : NULL;
	uint64_t base = 0;
	int result = 0;
	size_t count = json_array_size(slices);
	struct slice *more = realloc(ckpt->slices, (ckpt->slice_count + count + 1) * sizeof *more);
	if (more)
		ckpt->slices = more;
	if (!more)
		result = err_set(err, "checkpoint: no memory");
	else if (text && !slices && err->status != EXIT_DATA)
		result = -1;
	else if (!json_is_array(slices))
		result =
			ckpt_damaged(err, "%s does not say which slices it holds", source->shard.file->name);
	for (size_t i = 0; result == 0 && i < count; i++)
		result = add_slice(ckpt, source, json_array_get(slices, i), &base, err);
	json_decref(slices);
	return result == 0 ? check_states(source, base, err) : result;
}

static int by_tensor(const void *a, const void *b)
{
	const struct slice *x = a, *y = b;
	int order = strcmp(x->tensor->name, y->tensor->name);
	if (order)
		return order;
	if (x->first != y->first)
		return x->first < y->first ? -1 : 1;
	return (x->count > y->count) - (x->count < y->count);
}

static int index_slices(struct ckpt *ckpt, struct err *err)
{
	/* The list must exist even without an optimizer. */
	ckpt->slices = calloc(1, sizeof *ckpt->slices);
	if (!ckpt->slices)
		return err_set(err, "checkpoint: no memory");
	for (size_t i = 0; i < ckpt->manifest->file_count; i++) {
		int result = ckpt->manifest->files[i].role == MANIFEST_OPTIMIZER
			? add_slices(ckpt, &ckpt->sources[i], err)
			: 0;
		if (result < 0)
			return result;
	}
	qsort(ckpt->slices, ckpt->slice_count, sizeof *ckpt->slices, by_tensor);
	uint64_t next = 0;
	for (size_t i = 0; i < ckpt->slice_count; i++) {
		const struct slice *slice = &ckpt->slices[i];
		bool last = i + 1 == ckpt->slice_count || ckpt->slices[i + 1].tensor != slice->tensor;
		if (slice->first != next
			|| (last && slice->first + slice->count != ckpt_elements(slice->tensor)))
			return ckpt_damaged(err, "the slices of tensor %s do not cover it exactly once",
				slice->tensor->name);
		next = last ? 0 : slice->first + slice->count;
	}
	return 0;
}

/* ---- both ---- */

int ckpt_tables_make(struct ckpt *ckpt, struct err *err)
{
	int result = index_tensors(ckpt, err);
	if (result < 0)
		return result;
	order_places(ckpt);
	return index_slices(ckpt, err);
}

void ckpt_tables_free(struct ckpt *ckpt)
{
	free(ckpt->entries);
	free(ckpt->boxes);
	free(ckpt->places);
	free(ckpt->slices);
}
