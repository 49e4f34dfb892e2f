/* SPDX-License-Identifier: Apache-2.0 */
/* Converts a snapshot's pointers to offsets and back, and checks that they are in bounds in
 * between, since the two processes map the buffers at different addresses. */
#include "checkpoint/protocol/ckptd_attach.h"

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

static int check_tensor(const struct ckptd_attach *attach, const struct ckptd_tensor *tensor,
	struct err *err)
{
	uint64_t elements, bits, width = safetensors_dtype_bits(tensor->dtype);
	if (safetensors_elements(tensor->shape, tensor->dims, &elements) < 0
		|| __builtin_mul_overflow(elements, width, &bits) || bits % 8)
		return err_fail(err, EXIT_DATA, "its shape is out of range, or does not fill whole bytes");
	if (tensor->writer >= attach->parts)
		return err_fail(err, EXIT_DATA, "its writer is none of the parts");
	if (tensor->offset == CKPTD_NO_OFFSET)
		return tensor->writer == attach->part
			? err_fail(err, EXIT_DATA, "it is this part's, and has no offset")
			: 0;
	if (!in_buffer(attach, tensor->offset, bits / 8, width < 8 ? 1 : width / 8))
		return err_fail(err, EXIT_DATA, "it is not in the buffer, or not aligned");
	return 0;
}

static int check_slice(const struct ckptd_attach *attach, const struct ckptd_slice *slice,
	struct err *err)
{
	uint64_t elements;
	if (slice->tensor >= (int64_t)attach->tensor_count)
		return err_fail(err, EXIT_DATA, "it is of no tensor");
	const struct ckptd_tensor *tensor = &attach->tensors[slice->tensor];
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

static int check_names(const struct ckptd_attach *attach, struct err *err)
{
	json_t *names = json_object();
	for (size_t i = 0; i < attach->tensor_count; i++)
		json_object_set_new(names, attach->tensors[i].name, json_true());
	size_t different = json_object_size(names);
	json_decref(names);
	return different == attach->tensor_count
		? 0
		: err_fail(err, EXIT_DATA, "two tensors have one name, or no memory");
}

int ckptd_attach_check(const struct ckptd_attach *attach, struct err *err)
{
	bool listens = attach->parts > 1 && attach->part == 0;
	if (attach->part >= attach->parts)
		return err_fail(err, EXIT_DATA, "\"part\" is none of the parts");
	if (listens != !!attach->host || listens != !!attach->secret
		|| (attach->part > 0) != !!attach->first)
		return err_fail(err, EXIT_DATA,
			"\"host\" and \"secret\" are part 0's of several, and \"first\" is the others'");
	for (size_t i = 0; i < attach->tensor_count; i++)
		if (check_tensor(attach, &attach->tensors[i], err) < 0)
			return err_prefix(err, "tensors[%zu] (%s)", i, attach->tensors[i].name);
	for (size_t i = 0; i < attach->slice_count; i++)
		if (check_slice(attach, &attach->slices[i], err) < 0)
			return err_prefix(err, "slices[%zu]", i);
	return check_names(attach, err);
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

static int describe_tensors(struct ckptd_attach *attach, const struct snapshot *snapshot,
	const struct snapshot_memory *memory, struct err *err)
{
	for (size_t i = 0; i < snapshot->tensor_count; i++) {
		const struct snapshot_tensor *from = &snapshot->tensors[i];
		struct ckptd_tensor *to = &attach->tensors[i];
		*to = (struct ckptd_tensor) { .name = from->name,
			.dtype = from->dtype,
			.dims = from->dims,
			.writer = from->writer };
		memcpy(to->shape, from->shape, sizeof to->shape);
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

static int describe_slices(struct ckptd_attach *attach, const struct snapshot *snapshot,
	const struct snapshot_memory *memory, struct err *err)
{
	int64_t tensor = 0;
	for (size_t i = 0; i < snapshot->slice_count; i++) {
		const struct snapshot_slice *from = &snapshot->slices[i];
		struct ckptd_slice *to = &attach->slices[i];
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

int ckptd_attach_describe(struct ckptd_attach *attach, const struct snapshot *snapshot,
	const struct snapshot_memory *memory, struct err *err)
{
	attach->attempt = snapshot->attempt;
	attach->world_size = snapshot->world_size;
	attach->seed = snapshot->seed;
	attach->config = snapshot->config_json;
	attach->numerics = snapshot->numerics_json;
	attach->model = snapshot->model_json;
	attach->part = snapshot->part;
	attach->parts = snapshot->parts > 0 ? snapshot->parts : 1;
	attach->shard_size = (int64_t)snapshot->shard_size;
	attach->buffers = memory->buffers;
	attach->buffer_bytes = (int64_t)memory->bytes;
	attach->tensor_count = snapshot->tensor_count;
	attach->slice_count = snapshot->slice_count;
	attach->tensors = calloc(snapshot->tensor_count + 1, sizeof *attach->tensors);
	attach->slices = calloc(snapshot->slice_count + 1, sizeof *attach->slices);
	if (!attach->tensors || !attach->slices)
		return err_set(err, "checkpoint: no memory");
	if (describe_tensors(attach, snapshot, memory, err) < 0
		|| describe_slices(attach, snapshot, memory, err) < 0)
		return -1;
	return ckptd_attach_check(attach, err) < 0
		? err_prefix(err, "checkpoint: the snapshot can't be handed over")
		: 0;
}

/* ---- the service's side ---- */

static const void *place(const void *base, int64_t offset)
{
	return offset == CKPTD_NO_OFFSET ? NULL : (const char *)base + offset;
}

static void place_tensors(const struct ckptd_attach *attach, const void *base,
	struct snapshot_tensor *tensors)
{
	for (size_t i = 0; i < attach->tensor_count; i++) {
		const struct ckptd_tensor *from = &attach->tensors[i];
		tensors[i] = (struct snapshot_tensor) { .name = from->name,
			.dtype = from->dtype,
			.dims = from->dims,
			.writer = (int)from->writer,
			.data = place(base, from->offset) };
		memcpy(tensors[i].shape, from->shape, sizeof tensors[i].shape);
	}
}

static void place_slices(const struct ckptd_attach *attach, const void *base,
	struct snapshot_slice *slices)
{
	for (size_t i = 0; i < attach->slice_count; i++) {
		const struct ckptd_slice *from = &attach->slices[i];
		slices[i] = (struct snapshot_slice) { .tensor = attach->tensors[from->tensor].name,
			.first = (uint64_t)from->first,
			.count = (uint64_t)from->count,
			.writer = (int)from->writer };
		for (int s = 0; s < SNAPSHOT_STATES; s++)
			slices[i].state[s] = place(base, from->offset[s]);
	}
}

int ckptd_attach_snapshot(const struct ckptd_attach *attach, const void *base,
	struct snapshot *snapshot, struct err *err)
{
	struct snapshot_tensor *tensors = calloc(attach->tensor_count + 1, sizeof *tensors);
	struct snapshot_slice *slices = calloc(attach->slice_count + 1, sizeof *slices);
	*snapshot = (struct snapshot) { .attempt = (int)attach->attempt,
		.world_size = (int)attach->world_size,
		.seed = attach->seed,
		.config_json = attach->config,
		.numerics_json = attach->numerics,
		.model_json = attach->model,
		.tensors = tensors,
		.tensor_count = attach->tensor_count,
		.slices = slices,
		.slice_count = attach->slice_count,
		.part = (int)attach->part,
		.parts = (int)attach->parts,
		.shard_size = (uint64_t)attach->shard_size };
	if (!tensors || !slices) {
		ckptd_attach_free(snapshot);
		return err_set(err, "checkpoint: no memory");
	}
	place_tensors(attach, base, tensors);
	place_slices(attach, base, slices);
	return 0;
}

void ckptd_attach_free(struct snapshot *snapshot)
{
	free((void *)(uintptr_t)snapshot->tensors);
	free((void *)(uintptr_t)snapshot->slices);
	*snapshot = (struct snapshot) { 0 };
}
