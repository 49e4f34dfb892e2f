/* SPDX-License-Identifier: Apache-2.0 */
/* Turns a plan into the tensors of a snapshot. Each array gets its own aligned place in it. */
#include "config.h"
#include "lib/plan.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "lib/muster_private.h"

#define DEFAULT_SECONDS 60.0
#define ALIGN 64 /* of each array in a snapshot, bytes */

/* An array of the program: where it is, and where its copy goes in a snapshot. */
struct place {
	void *data;
	size_t offset, bytes;
	uint64_t elements;
};

static int describe_tensor(struct plan *plan, const struct muster_tensor *given, size_t i,
	struct err *err)
{
	struct snapshot_tensor *tensor = &plan->tensors[i];
	struct place *place = &plan->places[i];
	if (!given->name || !given->name[0] || !given->dtype || !given->data)
		return err_fail(err, EXIT_USAGE,
			"checkpoint: couldn't use tensor %zu of the plan: it needs a name, a dtype and data",
			i);
	if (given->dims < 0 || given->dims > SAFETENSORS_DIMS)
		return err_fail(err, EXIT_USAGE,
			"checkpoint: couldn't use tensor %s: it has %d dimensions: 0 to %d are possible",
			given->name, given->dims, SAFETENSORS_DIMS);
	*tensor = (struct snapshot_tensor) { .name = strdup(given->name), .dims = given->dims };
	memcpy(tensor->shape, given->shape, (size_t)given->dims * sizeof given->shape[0]);
	if (!tensor->name)
		return err_set(err, "checkpoint: out of memory");
	if (safetensors_dtype_parse(given->dtype, &tensor->dtype) < 0
		|| safetensors_dtype_bits(tensor->dtype) % 8)
		return err_fail(err, EXIT_USAGE,
			"checkpoint: couldn't use tensor %s: its type %.20s is none of F64, F32, BF16, F16, "
			"I64, I32, U64, U8 and the other whole-byte types of safetensors",
			given->name, given->dtype);
	const size_t width = safetensors_dtype_bits(tensor->dtype) / 8;
	if (safetensors_elements(tensor->shape, tensor->dims, &place->elements) < 0
		|| place->elements > (SIZE_MAX >> 2) / width)
		return err_fail(err, EXIT_USAGE,
			"checkpoint: couldn't use tensor %s: its shape is out of range", given->name);
	place->data = given->data;
	place->bytes = (size_t)place->elements * width;
	place->offset = plan->bytes;
	plan->bytes += (place->bytes + ALIGN - 1) / ALIGN * ALIGN;
	return 0;
}

static int describe(struct plan *plan, const struct muster_ckpt_plan *given, struct err *err)
{
	plan->tensors = calloc(given->tensor_count, sizeof *plan->tensors);
	plan->places = calloc(given->tensor_count, sizeof *plan->places);
	if (!plan->tensors || !plan->places)
		return err_set(err, "checkpoint: out of memory");
	plan->count = given->tensor_count;
	for (size_t i = 0; i < plan->count; i++)
		if (describe_tensor(plan, &given->tensors[i], i, err) < 0)
			return -1;
	return 0;
}

/* A program built with an older header has a shorter plan. One built with a newer header has
 * members that would be ignored, so it is refused. */
static int check_given(const struct muster_ckpt_plan *given, struct muster_ckpt_plan *whole,
	struct err *err)
{
	*whole = (struct muster_ckpt_plan) { 0 };
	if (muster_check_given(given, "the plan", err) < 0)
		return -1;
	if (given->size < offsetof(struct muster_ckpt_plan, timeout) + sizeof given->timeout
		|| given->size > sizeof *whole)
		return err_fail(err, EXIT_USAGE,
			"checkpoint: couldn't use a plan of %zu bytes: set its size to sizeof(struct "
			"muster_ckpt_plan), and run with a libmuster that is not older than the header",
			given->size);
	memcpy(whole, given, given->size);
	if (muster_check_timeout(whole->timeout, err) < 0)
		return -1;
	if (!whole->dir || !whole->dir[0] || !whole->tensors || whole->tensor_count == 0)
		return err_fail(err, EXIT_USAGE,
			"checkpoint: couldn't use the plan: it needs a directory and at least one tensor");
	return 0;
}

int plan_open(struct plan *plan, const struct muster_ckpt_plan *given, struct err *err)
{
	struct muster_ckpt_plan whole;
	*plan = (struct plan) { 0 };
	if (check_given(given, &whole, err) < 0)
		return -1;
	plan->timeout = muster_or(whole.timeout, DEFAULT_SECONDS);
	plan->retention =
		(struct retention) { .keep_last = whole.keep_last, .keep_every = whole.keep_every };
	if (describe(plan, &whole, err) == 0)
		return 0;
	plan_release(plan);
	return -1;
}

void plan_release(struct plan *plan)
{
	for (size_t i = 0; i < plan->count; i++)
		free((char *)plan->tensors[i].name);
	free(plan->tensors);
	free(plan->places);
	*plan = (struct plan) { 0 };
}

void plan_set_base(struct plan *plan, const void *base)
{
	for (size_t i = 0; i < plan->count; i++)
		plan->tensors[i].data = (const char *)base + plan->places[i].offset;
}

void plan_copy(const struct plan *plan, void *snapshot)
{
	for (size_t i = 0; i < plan->count; i++)
		memcpy((char *)snapshot + plan->places[i].offset, plan->places[i].data,
			plan->places[i].bytes);
}

/* Checks that the checkpoint has exactly the plan's tensors. */
static int check_tensors(const struct plan *plan, const struct ckpt *from, struct err *err)
{
	int64_t step = ckpt_manifest(from)->step;
	if (ckpt_tensor_count(from) != plan->count)
		return err_fail(err, EXIT_DATA,
			"resume: the checkpoint of step %" PRId64
			" has %zu tensors, the program %zu: give it a directory of its own",
			step, ckpt_tensor_count(from), plan->count);
	for (size_t i = 0; i < plan->count; i++) {
		const struct snapshot_tensor *tensor = &plan->tensors[i];
		const struct safetensors_tensor *found = ckpt_tensor_find(from, tensor->name);
		if (!found || found->dtype != tensor->dtype || found->dims != tensor->dims
			|| memcmp(found->shape, tensor->shape, (size_t)tensor->dims * sizeof tensor->shape[0])
				!= 0)
			return err_fail(err, EXIT_DATA,
				"resume: the checkpoint of step %" PRId64
				" has %s tensor %s%s: give the program a directory of its own",
				step, found ? "a" : "no", tensor->name, found ? " of another type or shape" : "");
	}
	return 0;
}

int plan_load(const struct plan *plan, struct ckpt *from, struct err *err)
{
	if (check_tensors(plan, from, err) < 0)
		return -1;
	for (size_t i = 0; i < plan->count; i++) {
		const struct place *place = &plan->places[i];
		int rc =
			ckpt_read_tensor(from, plan->tensors[i].name, 0, place->elements, place->data, err);
		if (rc < 0)
			return rc;
	}
	return 0;
}

int plan_hash(const struct plan *plan, struct hash128 *hash, struct err *err)
{
	struct hasher *hasher = hasher_create();
	if (!hasher)
		return err_set(err, "checkpoint: out of memory");
	for (size_t i = 0; i < plan->count; i++) {
		const struct snapshot_tensor *tensor = &plan->tensors[i];
		const int32_t numbers[] = { (int32_t)tensor->dtype, tensor->dims };
		hasher_add(hasher, tensor->name, strlen(tensor->name) + 1);
		hasher_add(hasher, numbers, sizeof numbers);
		hasher_add(hasher, tensor->shape, (size_t)tensor->dims * sizeof tensor->shape[0]);
	}
	*hash = hasher_value(hasher);
	hasher_destroy(hasher);
	return 0;
}
