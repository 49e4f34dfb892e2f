/* SPDX-License-Identifier: Apache-2.0 */
/* Converts a snapshot's pointers to offsets and back, and checks that they are in bounds in
 * between. */
#include "checkpoint/protocol/ckptd_save.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- check ---- */

/* Whether `bytes` bytes at `offset` are aligned to `width` and within a buffer. */
static bool in_buffer(const struct ckptd_attach *attach, int64_t offset, uint64_t bytes,
	uint64_t width)
{
	return offset >= 0 && (uint64_t)offset % width == 0 && offset <= attach->buffer_bytes
		&& bytes <= (uint64_t)(attach->buffer_bytes - offset);
}

static int check_box(const struct ckptd_tensor *tensor, struct err *err)
{
	if (tensor->box_dims == CKPTD_NO_SHAPE && tensor->box_offset_dims == CKPTD_NO_SHAPE)
		return 0;
	if (!tensor->state || tensor->box_dims != tensor->dims
		|| tensor->box_offset_dims != tensor->dims)
		return err_fail(err, EXIT_DATA,
			"it is a box of the model, or its tensor has another number of dimensions");
	for (int d = 0; d < tensor->dims; d++)
		if (tensor->shape[d] > tensor->box.shape[d]
			|| tensor->box.offset[d] > tensor->box.shape[d] - tensor->shape[d])
			return err_fail(err, EXIT_DATA, "it is not in its tensor");
	return 0;
}

static int check_tensor(const struct ckptd_attach *attach, const struct ckptd_tensor *tensor,
	struct err *err)
{
	uint64_t elements, bits, width = safetensors_dtype_bits(tensor->dtype);
	if (safetensors_elements(tensor->shape, tensor->dims, &elements) < 0
		|| __builtin_mul_overflow(elements, width, &bits) || bits % 8)
		return err_fail(err, EXIT_DATA, "its shape is out of range, or does not fill whole bytes");
	if (tensor->writer >= attach->parts)
		return err_fail(err, EXIT_DATA, "its writer is none of the parts");
	if (tensor->offset == CKPTD_NO_OFFSET && tensor->writer == attach->part && elements > 0)
		return err_fail(err, EXIT_DATA, "it is this part's, and has no offset");
	if (tensor->offset != CKPTD_NO_OFFSET
		&& !in_buffer(attach, tensor->offset, bits / 8, width < 8 ? 1 : width / 8))
		return err_fail(err, EXIT_DATA, "it is not in the buffer, or not aligned");
	return check_box(tensor, err);
}

static int check_slice(const struct ckptd_save *save, const struct ckptd_attach *attach,
	const struct ckptd_slice *slice, struct err *err)
{
	uint64_t elements;
	if (slice->tensor >= (int64_t)save->tensor_count || save->tensors[slice->tensor].state)
		return err_fail(err, EXIT_DATA, "it is of no tensor of the model");
	const struct ckptd_tensor *tensor = &save->tensors[slice->tensor];
	if (safetensors_elements(tensor->shape, tensor->dims, &elements) < 0
		|| (uint64_t)slice->first > elements
		|| (uint64_t)slice->count > elements - (uint64_t)slice->first
		|| (uint64_t)slice->count > INT64_MAX / sizeof(float))
		return err_fail(err, EXIT_DATA, "its elements are not in its tensor");
	if (slice->writer >= attach->parts)
		return err_fail(err, EXIT_DATA, "its writer is none of the parts");
	if (slice->offset[0] == CKPTD_NO_OFFSET)
		return slice->writer == attach->part
			? err_fail(err, EXIT_DATA, "it is this part's, and has no offsets")
			: 0;
	for (int s = 0; s < SNAPSHOT_STATES; s++)
		if (!in_buffer(attach, slice->offset[s], (uint64_t)slice->count * sizeof(float),
				sizeof(float)))
			return err_fail(err, EXIT_DATA, "it is not in the buffer, or not aligned");
	return 0;
}

int ckptd_save_check(const struct ckptd_save *save, const struct ckptd_attach *attach,
	struct err *err)
{
	if (save->buffer >= attach->buffers || (save->buffer < 0 && attach->parts == 1))
		return err_fail(err, EXIT_DATA, "there is no buffer %" PRId64, save->buffer);
	if (save->buffer < 0)
		return 0;
	if (!save->config || !save->numerics)
		return err_fail(err, EXIT_DATA, "it has no \"config\" or no \"numerics\"");
	for (size_t i = 0; i < save->tensor_count; i++)
		if (check_tensor(attach, &save->tensors[i], err) < 0)
			return err_prefix(err, "tensors[%zu] (%s)", i, save->tensors[i].name);
	for (size_t i = 0; i < save->slice_count; i++)
		if (check_slice(save, attach, &save->slices[i], err) < 0)
			return err_prefix(err, "slices[%zu]", i);
	return 0;
}

/* ---- the client's side ---- */

/* The offset of `data` in buffer 0. */
static int offset_of(const struct snapshot_memory *memory, const void *data, int64_t *offset,
	struct err *err)
{
	uintptr_t base = (uintptr_t)memory->base[0], at = (uintptr_t)data;
	*offset = CKPTD_NO_OFFSET;
	if (!data)
		return 0;
	if (at < base || at - base > memory->bytes)
		return err_set(err,
			"checkpoint: a tensor of the snapshot is not in the memory that is shared");
	*offset = (int64_t)(at - base);
	return 0;
}

static int describe_tensors(struct ckptd_save *save, const struct snapshot *snapshot,
	const struct snapshot_memory *memory, struct err *err)
{
	for (size_t i = 0; i < snapshot->tensor_count; i++) {
		const struct snapshot_tensor *from = &snapshot->tensors[i];
		struct ckptd_tensor *to = &save->tensors[i];
		*to = (struct ckptd_tensor) { .name = from->name,
			.dtype = from->dtype,
			.dims = from->dims,
			.writer = from->writer,
			.state = from->state,
			.box_dims = from->box ? from->dims : CKPTD_NO_SHAPE,
			.box_offset_dims = from->box ? from->dims : CKPTD_NO_SHAPE };
		memcpy(to->shape, from->shape, sizeof to->shape);
		if (from->box)
			to->box = *from->box;
		if (offset_of(memory, from->data, &to->offset, err) < 0)
			return -1;
	}
	return 0;
}

/* Slices mostly come in the order of the tensors, so the search begins where the last one ended. */
static int64_t find_tensor(const struct snapshot *snapshot, const char *name, size_t begin)
{
	for (size_t i = 0; i < snapshot->tensor_count; i++) {
		size_t at = (begin + i) % snapshot->tensor_count;
		if (strcmp(snapshot->tensors[at].name, name) == 0)
			return (int64_t)at;
	}
	return -1;
}

static int describe_slices(struct ckptd_save *save, const struct snapshot *snapshot,
	const struct snapshot_memory *memory, struct err *err)
{
	int64_t tensor = 0;
	for (size_t i = 0; i < snapshot->slice_count; i++) {
		const struct snapshot_slice *from = &snapshot->slices[i];
		struct ckptd_slice *to = &save->slices[i];
		tensor = find_tensor(snapshot, from->tensor, (size_t)tensor);
		if (tensor < 0)
			return err_set(err,
				"checkpoint: the snapshot has a slice of %s, which is no tensor of it",
				from->tensor);
		*to = (struct ckptd_slice) { tensor, (int64_t)from->first, (int64_t)from->count,
			from->writer, { 0 } };
		for (int s = 0; s < SNAPSHOT_STATES; s++)
			if (offset_of(memory, from->state[s], &to->offset[s], err) < 0)
				return -1;
	}
	return 0;
}

int ckptd_save_describe(struct ckptd_save *save, const struct snapshot *snapshot,
	const struct snapshot_memory *memory, int buffer, struct err *err)
{
	struct ckptd_attach attach = { 0 };
	*save = (struct ckptd_save) { .buffer = buffer,
		.at = snapshot->at,
		.config = snapshot->config_json,
		.numerics = snapshot->numerics_json,
		.model = snapshot->model_json,
		.values = snapshot->values_json,
		.tensors = calloc(snapshot->tensor_count + 1, sizeof *save->tensors),
		.tensor_count = snapshot->tensor_count,
		.slices = calloc(snapshot->slice_count + 1, sizeof *save->slices),
		.slice_count = snapshot->slice_count };
	if (!save->tensors || !save->slices)
		return err_set(err, "checkpoint: no memory");
	if (describe_tensors(save, snapshot, memory, err) < 0
		|| describe_slices(save, snapshot, memory, err) < 0)
		return -1;
	ckptd_attach_describe(&attach, snapshot, memory);
	if (ckptd_save_check(save, &attach, err) == 0)
		return 0;
	struct err why = *err;
	return err_set(err, "checkpoint: the snapshot can't be handed over: %s", why.text);
}

void ckptd_save_release(struct ckptd_save *save)
{
	free(save->tensors);
	free(save->slices);
	*save = (struct ckptd_save) { 0 };
}

/* ---- the service's side ---- */

static const void *place(const void *base, int64_t offset)
{
	return offset == CKPTD_NO_OFFSET ? NULL : (const char *)base + offset;
}

static void place_tensors(const struct ckptd_save *save, const void *base,
	struct snapshot_tensor *tensors)
{
	for (size_t i = 0; i < save->tensor_count; i++) {
		const struct ckptd_tensor *from = &save->tensors[i];
		tensors[i] = (struct snapshot_tensor) { .name = from->name,
			.dtype = from->dtype,
			.dims = from->dims,
			.writer = (int)from->writer,
			.data = place(base, from->offset),
			.state = from->state,
			.box = from->box_dims == CKPTD_NO_SHAPE ? NULL : &from->box };
		memcpy(tensors[i].shape, from->shape, sizeof tensors[i].shape);
	}
}

static void place_slices(const struct ckptd_save *save, const void *base,
	struct snapshot_slice *slices)
{
	for (size_t i = 0; i < save->slice_count; i++) {
		const struct ckptd_slice *from = &save->slices[i];
		slices[i] = (struct snapshot_slice) { .tensor = save->tensors[from->tensor].name,
			.first = (uint64_t)from->first,
			.count = (uint64_t)from->count,
			.writer = (int)from->writer };
		for (int s = 0; s < SNAPSHOT_STATES; s++)
			slices[i].state[s] = place(base, from->offset[s]);
	}
}

int ckptd_save_snapshot(const struct ckptd_save *save, const struct ckptd_attach *attach,
	const void *base, struct snapshot *snapshot, struct err *err)
{
	struct snapshot_tensor *tensors = calloc(save->tensor_count + 1, sizeof *tensors);
	struct snapshot_slice *slices = calloc(save->slice_count + 1, sizeof *slices);
	*snapshot = (struct snapshot) { .at = save->at,
		.attempt = (int)attach->attempt,
		.world_size = (int)attach->world_size,
		.seed = attach->seed,
		.config_json = save->config,
		.numerics_json = save->numerics,
		.model_json = save->model,
		.values_json = save->values,
		.tensors = tensors,
		.tensor_count = save->tensor_count,
		.slices = slices,
		.slice_count = save->slice_count,
		.part = (int)attach->part,
		.parts = (int)attach->parts,
		.shard_size = (uint64_t)attach->shard_size };
	if (!tensors || !slices) {
		ckptd_save_free_snapshot(snapshot);
		return err_fail(err, EXIT_LOST, "checkpoint: no memory");
	}
	place_tensors(save, base, tensors);
	place_slices(save, base, slices);
	return 0;
}

void ckptd_save_free_snapshot(struct snapshot *snapshot)
{
	free((void *)(uintptr_t)snapshot->tensors);
	free((void *)(uintptr_t)snapshot->slices);
	*snapshot = (struct snapshot) { 0 };
}
