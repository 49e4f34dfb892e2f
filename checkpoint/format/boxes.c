/* SPDX-License-Identifier: Apache-2.0 */
/* Boxes are compared in the order of their offsets, so that each meets only those which begin
 * before it ends. */
#include "checkpoint/format/boxes.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"

bool box_is_whole(const struct box *box)
{
	for (int d = 0; d < box->dims; d++)
		if (box->offset[d] != 0 || box->size[d] != box->shape[d])
			return false;
	return true;
}

int box_outside(int dims, const int64_t *shape, const int64_t *offset, const int64_t *size)
{
	for (int d = 0; d < dims; d++)
		if (offset[d] < 0 || size[d] < 0 || size[d] > shape[d] || offset[d] > shape[d] - size[d])
			return d;
	return -1;
}

static uint64_t volume(const struct box *box)
{
	uint64_t elements = 0;
	safetensors_elements(box->size, box->dims, &elements);
	return elements;
}

/* ---- coverage ---- */

static int by_tensor(const void *a, const void *b)
{
	const struct box *x = a, *y = b;
	int order = strcmp(x->tensor, y->tensor);
	if (order == 0)
		order = x->dims - y->dims;
	for (int d = 0; order == 0 && d < x->dims; d++)
		order = (x->offset[d] > y->offset[d]) - (x->offset[d] < y->offset[d]);
	return order;
}

static int check_box(const struct box *box, const struct box *first, struct err *err)
{
	uint64_t elements;
	if (box->dtype != first->dtype || box->dims != first->dims
		|| memcmp(box->shape, first->shape, sizeof box->shape) != 0)
		return err_fail(err, EXIT_DATA, "the boxes of tensor %s differ in its type or shape",
			box->tensor);
	if (safetensors_elements(box->size, box->dims, &elements) < 0
		|| safetensors_elements(box->shape, box->dims, &elements) < 0)
		return err_fail(err, EXIT_DATA, "a box of tensor %s has no valid shape", box->tensor);
	return box_outside(box->dims, box->shape, box->offset, box->size) < 0
		? 0
		: err_fail(err, EXIT_DATA, "a box of tensor %s is not in it", box->tensor);
}

static bool overlap(const struct box *a, const struct box *b)
{
	for (int d = 0; d < a->dims; d++)
		if (a->offset[d] >= b->offset[d] + b->size[d] || b->offset[d] >= a->offset[d] + a->size[d])
			return false;
	return volume(a) > 0 && volume(b) > 0;
}

/* Whether the box overlaps one of those after it. */
static bool overlaps_later(const struct box *box, const struct box *end)
{
	for (const struct box *other = box + 1; other < end; other++) {
		if (box->dims > 0 && other->offset[0] >= box->offset[0] + box->size[0])
			return false;
		if (overlap(box, other))
			return true;
	}
	return false;
}

/* The boxes are all those of one tensor. */
static int check_tensor(const struct box *boxes, size_t count, struct err *err)
{
	uint64_t covered = 0, elements = 0;
	if (count > BOXES_MAX)
		return err_fail(err, EXIT_DATA, "tensor %s has %zu boxes, more than %d", boxes->tensor,
			count, BOXES_MAX);
	if (count > 1 && box_is_whole(&boxes[0]) && box_is_whole(&boxes[1]))
		return err_fail(err, EXIT_DATA, "tensor %s is there twice", boxes->tensor);
	for (size_t i = 0; i < count; i++)
		if (check_box(&boxes[i], &boxes[0], err) < 0)
			return -1;
	safetensors_elements(boxes->shape, boxes->dims, &elements);
	for (size_t i = 0; i < count; i++) {
		covered += volume(&boxes[i]);
		if (covered > elements || overlaps_later(&boxes[i], boxes + count))
			return err_fail(err, EXIT_DATA, "two boxes of tensor %s overlap", boxes->tensor);
	}
	return covered == elements
		? 0
		: err_fail(err, EXIT_DATA,
			"the boxes of tensor %s have %" PRIu64 " of its %" PRIu64 " elements", boxes->tensor,
			covered, elements);
}

int boxes_check(struct box *boxes, size_t count, struct err *err)
{
	qsort(boxes, count, sizeof *boxes, by_tensor);
	for (size_t i = 0, next; i < count; i = next) {
		for (next = i + 1; next < count && strcmp(boxes[next].tensor, boxes[i].tensor) == 0;)
			next++;
		if (check_tensor(boxes + i, next - i, err) < 0)
			return -1;
	}
	return 0;
}

int boxes_check_tensors(const struct snapshot_tensor *tensors, size_t count, struct err *err)
{
	AUTO_FREE struct box *boxes = calloc(count + 1, sizeof *boxes);
	if (!boxes)
		return err_set(err, "no memory for a list of %zu tensors", count);
	for (size_t i = 0; i < count; i++) {
		const struct snapshot_tensor *tensor = &tensors[i];
		const size_t bytes = (size_t)tensor->dims * sizeof tensor->shape[0];
		boxes[i] =
			(struct box) { .tensor = tensor->name, .dtype = tensor->dtype, .dims = tensor->dims };
		memcpy(boxes[i].size, tensor->shape, bytes);
		memcpy(boxes[i].shape, tensor->box ? tensor->box->shape : tensor->shape, bytes);
		if (tensor->box)
			memcpy(boxes[i].offset, tensor->box->offset, bytes);
	}
	return boxes_check(boxes, count, err);
}

/* ---- runs ---- */

/* The first dimension from which on the box has all of its tensor: elements of these dimensions lie
 * together. */
static int together(const struct box *box)
{
	int d = box->dims;
	while (d > 0 && box->offset[d - 1] == 0 && box->size[d - 1] == box->shape[d - 1])
		d--;
	return d;
}

/* The part of a run that is wanted. */
static int cut_run(const struct box *box, uint64_t in_box, uint64_t length, uint64_t at,
	uint64_t first, uint64_t count, box_run *run, void *arg)
{
	uint64_t begin = at > first ? at : first, end = at + length;
	if (end > first + count)
		end = first + count;
	return begin < end ? run(arg, box, in_box + (begin - at), end - begin, begin) : 0;
}

int box_runs(const struct box *box, uint64_t first, uint64_t count, box_run *run, void *arg)
{
	int outer = together(box), result = 0;
	outer = outer > 0 ? outer - 1 : 0; /* the last of the others is one range as well */
	int64_t index[SAFETENSORS_DIMS] = { 0 };
	uint64_t length = 1, elements = volume(box);
	for (int d = outer; d < box->dims; d++)
		length *= (uint64_t)box->size[d];
	for (uint64_t in_box = 0; result == 0 && in_box < elements; in_box += length) {
		uint64_t at = 0;
		for (int d = 0; d < box->dims; d++)
			at = at * (uint64_t)box->shape[d]
				+ (uint64_t)(box->offset[d] + (d < outer ? index[d] : 0));
		if (at >= first + count)
			break;
		result = cut_run(box, in_box, length, at, first, count, run, arg);
		for (int d = outer - 1; d >= 0 && ++index[d] == box->size[d]; d--)
			index[d] = 0;
	}
	return result;
}

/* The elements that two boxes have in common. Those from dimension `outer` on lie together in
 * both. */
struct common {
	int64_t begin[SAFETENSORS_DIMS], size[SAFETENSORS_DIMS];
	int outer;
	uint64_t rows, length; /* how many of these runs there are; their elements */
};

static bool intersect(const struct box *a, const struct box *b, struct common *common)
{
	int d;
	*common = (struct common) { .rows = 1, .length = 1 };
	for (d = 0; d < a->dims; d++) {
		int64_t end_a = a->offset[d] + a->size[d], end_b = b->offset[d] + b->size[d];
		common->begin[d] = a->offset[d] > b->offset[d] ? a->offset[d] : b->offset[d];
		common->size[d] = (end_a < end_b ? end_a : end_b) - common->begin[d];
		if (common->size[d] <= 0)
			return false;
	}
	while (d > 0 && common->size[d - 1] == a->size[d - 1] && common->size[d - 1] == b->size[d - 1])
		d--;
	common->outer = d > 0 ? d - 1 : 0;
	for (d = 0; d < a->dims; d++)
		*(d < common->outer ? &common->rows : &common->length) *= (uint64_t)common->size[d];
	return true;
}

/* The number of an element in the box, given by its index in the whole tensor. */
static uint64_t number_in(const struct box *box, const int64_t *index)
{
	uint64_t number = 0;
	for (int d = 0; d < box->dims; d++)
		number = number * (uint64_t)box->size[d] + (uint64_t)(index[d] - box->offset[d]);
	return number;
}

int box_common(const struct box *box, const struct box *wanted, box_run *run, void *arg)
{
	struct common common;
	int64_t index[SAFETENSORS_DIMS];
	int result = 0;
	if (!intersect(box, wanted, &common))
		return 0;
	memcpy(index, common.begin, sizeof index);
	for (uint64_t row = 0; result == 0 && row < common.rows; row++) {
		result = run(arg, box, number_in(box, index), common.length, number_in(wanted, index));
		for (int d = common.outer - 1; d >= 0 && ++index[d] == common.begin[d] + common.size[d];
			 d--)
			index[d] = common.begin[d];
	}
	return result;
}
