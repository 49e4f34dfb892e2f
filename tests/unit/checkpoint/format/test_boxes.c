/* SPDX-License-Identifier: Apache-2.0 */
/* Boxes: whatever way a tensor is cut up, the runs of its boxes are its elements, each once; boxes
 * that leave out an element, or have one twice, are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "checkpoint/format/boxes.h"

#define BOXES 64
#define ELEMENTS 4096

static uint64_t seed;

/* A number below `limit`. */
static int64_t draw(int64_t limit)
{
	seed = seed * 6364136223846793005ull + 1442695040888963407ull;
	return (int64_t)((seed >> 33) % (uint64_t)limit);
}

static struct box whole(int dims, const int64_t *shape)
{
	struct box box = { .tensor = "w", .dtype = SAFETENSORS_F32, .dims = dims };
	memcpy(box.shape, shape, (size_t)dims * sizeof *shape);
	memcpy(box.size, shape, (size_t)dims * sizeof *shape);
	return box;
}

/* Cuts boxes in two, again and again, at random; some get size 0. Returns their number. */
static size_t cut(struct box *boxes, size_t wanted)
{
	size_t count = 1;
	for (int tries = 0; boxes[0].dims > 0 && count < wanted && tries < 1000; tries++) {
		struct box *box = &boxes[draw((int64_t)count)], *other = &boxes[count];
		int d = (int)draw(box->dims);
		int64_t at = draw(box->size[d] + 1);
		*other = *box;
		other->offset[d] += at;
		other->size[d] -= at;
		box->size[d] = at;
		count++;
	}
	return count;
}

/* ---- runs ---- */

struct copy {
	const uint32_t *box; /* the elements of the box */
	uint32_t *out;       /* those from `first` on */
	uint64_t first, copied;
};

static int copy_run(void *arg, const struct box *box, uint64_t first, uint64_t count, uint64_t at)
{
	struct copy *copy = arg;
	(void)box;
	assert_true(count > 0);
	memcpy(copy->out + (at - copy->first), copy->box + first, count * sizeof *copy->out);
	copy->copied += count;
	return 0;
}

/* The elements of the box, out of those of the tensor, one by one. */
static void fill_box(const struct box *box, const uint32_t *tensor, uint32_t *out)
{
	int64_t index[SAFETENSORS_DIMS] = { 0 };
	uint64_t elements;
	safetensors_elements(box->size, box->dims, &elements);
	for (uint64_t i = 0; i < elements; i++) {
		int64_t at = 0;
		for (int d = 0; d < box->dims; d++)
			at = at * box->shape[d] + box->offset[d] + index[d];
		out[i] = tensor[at];
		for (int d = box->dims - 1; d >= 0 && ++index[d] == box->size[d]; d--)
			index[d] = 0;
	}
}

static void reads_as_the_whole(const struct box *boxes, size_t count, uint64_t elements)
{
	static uint32_t tensor[ELEMENTS], box[ELEMENTS], out[ELEMENTS];
	for (uint32_t i = 0; i < elements; i++)
		tensor[i] = i * 2654435761u;
	for (int try = 0; try < 8; try++) {
		uint64_t first = try ? (uint64_t)draw((int64_t)elements + 1) : 0;
		uint64_t n = try ? (uint64_t)draw((int64_t)(elements - first) + 1) : elements;
		uint64_t copied = 0;
		memset(out, 0, sizeof out);
		for (size_t i = 0; i < count; i++) {
			struct copy copy = { box, out, first, 0 };
			fill_box(&boxes[i], tensor, box);
			assert_int_equal(box_runs(&boxes[i], first, n, copy_run, &copy), 0);
			copied += copy.copied;
		}
		assert_int_equal(copied, n);
		assert_memory_equal(out, tensor + first, n * sizeof *out);
	}
}

/* Any other box of the tensor, out of those that it is cut into. */
static void any_box_is_read(const struct box *boxes, size_t count, const int64_t *shape)
{
	static uint32_t tensor[ELEMENTS], box[ELEMENTS], out[ELEMENTS], expected[ELEMENTS];
	for (uint32_t i = 0; i < ELEMENTS; i++)
		tensor[i] = i * 2654435761u;
	for (int try = 0; try < 4; try++) {
		struct box wanted = whole(boxes->dims, shape);
		uint64_t copied = 0, elements;
		for (int d = 0; d < wanted.dims; d++) {
			wanted.offset[d] = draw(shape[d] + 1);
			wanted.size[d] = draw(shape[d] - wanted.offset[d] + 1);
		}
		safetensors_elements(wanted.size, wanted.dims, &elements);
		fill_box(&wanted, tensor, expected);
		memset(out, 0, sizeof out);
		for (size_t i = 0; i < count; i++) {
			struct copy copy = { box, out, 0, 0 };
			fill_box(&boxes[i], tensor, box);
			assert_int_equal(box_common(&boxes[i], &wanted, copy_run, &copy), 0);
			copied += copy.copied;
		}
		assert_int_equal(copied, elements);
		assert_memory_equal(out, expected, elements * sizeof *out);
	}
}

static void however_it_is_cut_the_boxes_are_the_tensor(void **state)
{
	struct box boxes[BOXES];
	struct err err;
	for (seed = 0; seed < 3000;) {
		uint64_t begun = ++seed, elements;
		int64_t shape[SAFETENSORS_DIMS];
		int dims = (int)draw(5);
		for (int d = 0; d < dims; d++)
			shape[d] = draw(9);
		boxes[0] = whole(dims, shape);
		safetensors_elements(shape, dims, &elements);
		assert_true(elements <= ELEMENTS);
		size_t count = elements > 0 ? cut(boxes, (size_t)draw(BOXES) + 1) : 1;
		if (boxes_check(boxes, count, &err) < 0)
			fail_msg("seed %llu: %s", (unsigned long long)begun, err.text);
		reads_as_the_whole(boxes, count, elements);
		any_box_is_read(boxes, count, shape);
		seed = begun;
	}
}

static int enough(void *arg, const struct box *box, uint64_t first, uint64_t count, uint64_t at)
{
	(void)box, (void)first, (void)count, (void)at;
	return ++*(int *)arg == 2 ? -7 : 0;
}

static void a_walk_ends_where_it_is_told_to(void **state)
{
	struct box box = whole(2, (int64_t[]) { 8, 8 });
	int calls = 0;
	box.size[1] = 3;
	assert_int_equal(box_runs(&box, 0, 64, enough, &calls), -7);
	assert_int_equal(calls, 2);
	calls = 0;
	assert_int_equal(box_common(&box, &box, enough, &calls), 0);
	assert_int_equal(calls, 1); /* all of it lies together */
	struct box wanted = whole(2, (int64_t[]) { 8, 8 });
	assert_int_equal(box_common(&box, &wanted, enough, &calls), -7);
	assert_int_equal(calls, 2);
}

/* ---- what is refused ---- */

static void refused(struct box *boxes, size_t count, const char *words)
{
	struct err err;
	assert_int_equal(boxes_check(boxes, count, &err), -1);
	assert_int_equal(err.status, EXIT_DATA);
	if (!strstr(err.text, words))
		fail_msg("'%s' does not say '%s'", err.text, words);
}

/* A cut tensor, one of whose boxes is dropped, doubled, moved or made larger. */
static void an_element_missing_or_twice_is_refused(void **state)
{
	struct box boxes[BOXES + 1];
	struct err err;
	int refusals = 0;
	for (seed = 0; seed < 3000;) {
		uint64_t begun = ++seed, elements;
		boxes[0] = whole(3, (int64_t[]) { 1 + draw(8), 1 + draw(8), 1 + draw(8) });
		size_t count = cut(boxes, (size_t)draw(BOXES - 1) + 2),
			   spoiled = (size_t)draw((int64_t)count);
		struct box *box = &boxes[spoiled];
		int d = (int)draw(3);
		safetensors_elements(box->size, 3, &elements);
		seed = begun;
		if (elements == 0)
			continue;
		switch (begun % 4) {
		case 0: *box = boxes[--count]; break;
		case 1: boxes[count++] = *box; break;
		case 2: box->offset[d] += box->offset[d] > 0 ? -1 : 1; break;
		default: box->size[d]++; break;
		}
		if (count == 0)
			continue;
		if (boxes_check(boxes, count, &err) == 0)
			fail_msg("seed %llu", (unsigned long long)begun);
		assert_int_equal(err.status, EXIT_DATA);
		refusals++;
	}
	assert_true(refusals > 500);
}

static void the_line_names_the_tensor_and_the_fault(void **state)
{
	struct box pair[2] = { whole(1, (int64_t[]) { 6 }), whole(1, (int64_t[]) { 6 }) };
	refused(pair, 2, "tensor w is there twice");
	pair[0].size[0] = pair[1].size[0] = 3;
	pair[1].offset[0] = 2;
	refused(pair, 2, "two boxes of tensor w overlap");
	pair[1].offset[0] = 3;
	pair[1].size[0] = 2;
	refused(pair, 2, "the boxes of tensor w have 5 of its 6 elements");
	pair[1].size[0] = 4;
	refused(pair, 2, "a box of tensor w is not in it");
	pair[1].size[0] = 3;
	pair[1].offset[0] = INT64_MAX;
	refused(pair, 2, "a box of tensor w is not in it");
	pair[1].offset[0] = 3;
	pair[1].dtype = SAFETENSORS_F16;
	refused(pair, 2, "differ in its type or shape");
	pair[1] = whole(2, (int64_t[]) { 6, 1 });
	refused(pair, 2, "differ in its type or shape");
	pair[0] = whole(1, (int64_t[]) { 6 });
	refused(pair, 2, "tensor w is there twice");
	pair[0] = pair[1] = whole(0, (int64_t[]) { 0 });
	refused(pair, 2, "tensor w is there twice");
}

static void too_many_boxes_are_refused(void **state)
{
	size_t count = BOXES_MAX + 1;
	struct box *boxes = calloc(count, sizeof *boxes);
	for (size_t i = 0; i < count; i++) {
		boxes[i] = whole(1, (int64_t[]) { (int64_t)count });
		boxes[i].offset[0] = (int64_t)i;
		boxes[i].size[0] = 1;
	}
	refused(boxes, count, "more than 16384");
	free(boxes);
}

static void tensors_are_told_apart_by_name(void **state)
{
	struct err err;
	struct box boxes[3] = { whole(1, (int64_t[]) { 6 }), whole(1, (int64_t[]) { 6 }),
		whole(1, (int64_t[]) { 6 }) };
	boxes[0].tensor = "z";
	boxes[1].size[0] = 2;
	boxes[2].size[0] = 4;
	boxes[2].offset[0] = 2;
	boxes[1].owner = &boxes[1];
	assert_int_equal(boxes_check(boxes, 3, &err), 0);
	assert_string_equal(boxes[2].tensor, "z");
	assert_ptr_equal(boxes[0].owner, &boxes[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(however_it_is_cut_the_boxes_are_the_tensor),
		cmocka_unit_test(a_walk_ends_where_it_is_told_to),
		cmocka_unit_test(an_element_missing_or_twice_is_refused),
		cmocka_unit_test(the_line_names_the_tensor_and_the_fault),
		cmocka_unit_test(too_many_boxes_are_refused),
		cmocka_unit_test(tensors_are_told_apart_by_name),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
