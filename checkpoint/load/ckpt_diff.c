/* SPDX-License-Identifier: Apache-2.0 */
/* Compares two checkpoints block by block, so that they may be larger than memory. */
#include "checkpoint/load/ckpt_diff.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/record.h"
#include "common/auto.h"
#include "common/bytes.h"

#define BLOCK (1u << 20) /* elements */

/* ---- values ---- */

static void add_distance(struct ckpt_difference *difference, double x, double y)
{
	double absolute = fabs(x - y);
	double larger = fabs(x) > fabs(y) ? fabs(x) : fabs(y);
	if (!isfinite(absolute))
		difference->absolute = difference->relative = INFINITY;
	else if (absolute > difference->absolute)
		difference->absolute = absolute;
	if (isfinite(absolute) && absolute > difference->relative * larger)
		difference->relative = absolute / larger;
}

void ckpt_diff_floats(struct ckpt_difference *difference, const float *a, const float *b,
	size_t count)
{
	if (memcmp(a, b, count * sizeof *a) == 0)
		return;
	difference->same = false;
	for (size_t i = 0; i < count; i++)
		if (bytes_of_float(a[i]) != bytes_of_float(b[i])) {
			difference->differing++;
			add_distance(difference, (double)a[i], (double)b[i]);
		}
}

bool ckpt_diff_same(const struct ckpt_tensor_diff *diff)
{
	for (int p = 0; p < CKPT_DIFF_PARTS; p++)
		if (diff->kind[p] != CKPT_DIFF_NONE
			&& (diff->kind[p] != CKPT_DIFF_COMPARED || !diff->difference[p].same))
			return false;
	return !diff->dtypes_differ;
}

/* ---- tensors ---- */

struct comparing {
	struct ckpt *ckpt[2];
	float *values[2]; /* [BLOCK] each */
	void *raw;        /* BLOCK elements in the stored dtype */
	void (*progress)(void *arg, uint64_t bytes);
	void *arg;
};

/* Part 0 is the weights, part 1 + s is state s. */
static int read_block(struct comparing *c, int side, int part,
	const struct safetensors_tensor *tensor, uint64_t first, size_t count, struct err *err)
{
	if (part > 0)
		return ckpt_read_state(c->ckpt[side], (enum snapshot_state)(part - 1), tensor->name, first,
			count, c->values[side], err);
	int result = ckpt_read_tensor(c->ckpt[side], tensor->name, first, count, c->raw, err);
	if (result == 0)
		safetensors_to_fp32(tensor->dtype, c->raw, count, c->values[side]);
	return result;
}

static int compare_part(struct comparing *c, int part,
	const struct safetensors_tensor *const tensors[2], struct ckpt_difference *difference,
	struct err *err)
{
	uint64_t elements = 0;
	safetensors_elements(tensors[0]->shape, tensors[0]->dims, &elements);
	for (uint64_t first = 0; first < elements; first += BLOCK) {
		size_t count = elements - first < BLOCK ? (size_t)(elements - first) : BLOCK;
		for (int side = 0; side < 2; side++) {
			int result = read_block(c, side, part, tensors[side], first, count, err);
			if (result != 0) {
				err_prefix(err, side ? "B" : "A");
				return result;
			}
			if (c->progress)
				c->progress(c->arg,
					count * (part ? 32 : safetensors_dtype_bits(tensors[side]->dtype)) / 8);
		}
		ckpt_diff_floats(difference, c->values[0], c->values[1], count);
	}
	return 0;
}

/* ---- elements that are not converted to fp32 ---- */

/* The value of an element, as near as fp64 comes to it; not a number for types that have no
 * arithmetic here. */
static double value_at(enum safetensors_dtype dtype, const void *raw, size_t i)
{
	const unsigned char *at = (const unsigned char *)raw + i * (safetensors_dtype_bits(dtype) / 8);
	double real;
	switch (dtype) {
	case SAFETENSORS_BOOL:
	case SAFETENSORS_U8: return *at;
	case SAFETENSORS_I8: return (int8_t)*at;
	case SAFETENSORS_U16: return bytes_le16(at);
	case SAFETENSORS_I16: return (int16_t)bytes_le16(at);
	case SAFETENSORS_U32: return bytes_le32(at);
	case SAFETENSORS_I32: return (int32_t)bytes_le32(at);
	case SAFETENSORS_U64: return (double)bytes_le64(at);
	case SAFETENSORS_I64: return (double)(int64_t)bytes_le64(at);
	case SAFETENSORS_F64: memcpy(&real, at, sizeof real); return real;
	default: return NAN;
	}
}

static void diff_exact(struct ckpt_difference *difference, enum safetensors_dtype dtype,
	const void *a, const void *b, size_t count)
{
	const size_t width = safetensors_dtype_bits(dtype) / 8;
	for (size_t i = 0; i < count; i++) {
		if (memcmp((const char *)a + i * width, (const char *)b + i * width, width) == 0)
			continue;
		difference->same = false;
		difference->differing++;
		add_distance(difference, value_at(dtype, a, i), value_at(dtype, b, i));
	}
}

/* Compares bit by bit what fp32 can't represent. Both have one type. */
static int compare_exact(struct comparing *c, const struct safetensors_tensor *const tensors[2],
	struct ckpt_difference *difference, struct err *err)
{
	void *raw[2] = { c->values[0], c->values[1] };
	const enum safetensors_dtype dtype = tensors[0]->dtype;
	const size_t width = safetensors_dtype_bits(dtype) / 8, most = BLOCK * sizeof(float) / width;
	uint64_t elements = 0;
	safetensors_elements(tensors[0]->shape, tensors[0]->dims, &elements);
	for (uint64_t first = 0; first < elements; first += most) {
		size_t count = elements - first < most ? (size_t)(elements - first) : most;
		for (int side = 0; side < 2; side++) {
			int result =
				ckpt_read_tensor(c->ckpt[side], tensors[side]->name, first, count, raw[side], err);
			if (result != 0) {
				err_prefix(err, side ? "B" : "A");
				return result;
			}
			if (c->progress)
				c->progress(c->arg, width * count);
		}
		diff_exact(difference, dtype, raw[0], raw[1], count);
	}
	return 0;
}

static bool has_part(struct ckpt *ckpt, int part, const struct safetensors_tensor *tensor)
{
	return tensor && (part == 0 || ckpt_has_state(ckpt, tensor->name));
}

static bool same_shape(const struct safetensors_tensor *a, const struct safetensors_tensor *b)
{
	return a->dims == b->dims
		&& memcmp(a->shape, b->shape, (size_t)a->dims * sizeof a->shape[0]) == 0;
}

static bool is_float(const struct safetensors_tensor *tensor)
{
	return safetensors_is_float(tensor->dtype);
}

static enum ckpt_diff_kind kind_of(const struct comparing *c, int part,
	const struct safetensors_tensor *a, const struct safetensors_tensor *b)
{
	bool in_a = has_part(c->ckpt[0], part, a), in_b = has_part(c->ckpt[1], part, b);
	if (!in_a || !in_b)
		return in_a ? CKPT_DIFF_ONLY_A : in_b ? CKPT_DIFF_ONLY_B : CKPT_DIFF_NONE;
	if (!same_shape(a, b))
		return CKPT_DIFF_SHAPE;
	if (part == 0 && a->dtype != b->dtype && !(is_float(a) && is_float(b)))
		return CKPT_DIFF_TYPE;
	return CKPT_DIFF_COMPARED;
}

static int compare_tensor(struct comparing *c, const struct safetensors_tensor *const tensors[2],
	struct ckpt_tensor_diff *diff, struct err *err)
{
	const struct safetensors_tensor *a = tensors[0], *b = tensors[1];
	int result = 0;
	*diff = (struct ckpt_tensor_diff) { .name = a ? a->name : b->name,
		.dtypes_differ = a && b && a->dtype != b->dtype };
	for (int side = 0; side < 2; side++)
		if (tensors[side] && safetensors_dtype_bits(tensors[side]->dtype) % 8)
			return err_fail(err, EXIT_DATA,
				"diff: tensor %s has elements of type %s, which can't be compared", diff->name,
				safetensors_dtype_name(tensors[side]->dtype));
	for (int p = 0; result == 0 && p < CKPT_DIFF_PARTS; p++) {
		diff->difference[p].same = true;
		diff->kind[p] = kind_of(c, p, a, b);
		if (diff->kind[p] == CKPT_DIFF_COMPARED)
			result = p > 0 || is_float(a) ? compare_part(c, p, tensors, &diff->difference[p], err)
										  : compare_exact(c, tensors, &diff->difference[p], err);
	}
	return result;
}

/* The order of the lists: the tensors of the model come before those of the state. */
static int in_order(const struct comparing *c, const size_t at[2],
	const struct safetensors_tensor *const next[2])
{
	bool state[2] = { at[0] >= ckpt_tensor_count(c->ckpt[0]),
		at[1] >= ckpt_tensor_count(c->ckpt[1]) };
	if (!next[0] || !next[1])
		return next[0] ? -1 : 1;
	return state[0] != state[1] ? state[0] - state[1] : strcmp(next[0]->name, next[1]->name);
}

/* Walks both lists side by side. */
static int compare_all(struct comparing *c, ckpt_diff_tensor *tensor, struct err *err)
{
	size_t at[2] = { 0, 0 };
	for (;;) {
		const struct safetensors_tensor *next[2] = { NULL, NULL };
		struct ckpt_tensor_diff diff;
		for (int side = 0; side < 2; side++)
			if (at[side] < ckpt_tensor_total(c->ckpt[side]))
				next[side] = ckpt_tensor_at(c->ckpt[side], at[side]);
		if (!next[0] && !next[1])
			return 0;
		int order = in_order(c, at, next);
		if (order > 0)
			next[0] = NULL;
		if (order < 0)
			next[1] = NULL;
		at[0] += next[0] != NULL;
		at[1] += next[1] != NULL;
		int result = compare_tensor(c, next, &diff, err);
		if (result == 0)
			result = tensor(c->arg, &diff);
		if (result != 0)
			return result;
	}
}

int ckpt_diff(struct ckpt *a, struct ckpt *b, ckpt_diff_tensor *tensor,
	void (*progress)(void *arg, uint64_t bytes), void *arg, struct err *err)
{
	AUTO_FREE float *values = malloc(2 * BLOCK * sizeof *values);
	AUTO_FREE void *raw = malloc(BLOCK * sizeof *values);
	if (!values || !raw)
		return err_set(err, "diff: no memory");
	struct comparing c = { .ckpt = { a, b },
		.values = { values, values + BLOCK },
		.raw = raw,
		.progress = progress,
		.arg = arg };
	return compare_all(&c, tensor, err);
}

uint64_t ckpt_diff_bytes(const struct ckpt *ckpt)
{
	uint64_t bytes = 0;
	for (size_t i = 0; i < ckpt_tensor_total(ckpt); i++) {
		const struct safetensors_tensor *tensor = ckpt_tensor_at(ckpt, i);
		uint64_t elements = 0;
		safetensors_elements(tensor->shape, tensor->dims, &elements);
		bytes += tensor->end - tensor->begin;
		if (ckpt_has_state(ckpt, tensor->name))
			bytes += elements * sizeof(float) * SNAPSHOT_STATES;
	}
	return bytes;
}

/* ---- configuration ---- */

static void compare_json(const char *name, const json_t *a, const json_t *b, json_t **out);

static void compare_member(const char *prefix, const char *key, const json_t *a, const json_t *b,
	json_t **out)
{
	char name[256];
	snprintf(name, sizeof name, "%s%s%s", prefix, prefix[0] ? "." : "", key);
	compare_json(name, a, b, out);
}

static void compare_json(const char *name, const json_t *a, const json_t *b, json_t **out)
{
	const char *key;
	json_t *value;
	if (json_equal(a, b))
		return;
	if (!json_is_object(a) || !json_is_object(b)) {
		json_t *difference = json_pack("{s:s}", "name", name);
		if (a)
			difference = record_set(difference, "a", json_incref((json_t *)a));
		if (b)
			difference = record_set(difference, "b", json_incref((json_t *)b));
		*out = record_append(*out, difference);
		return;
	}
	json_object_foreach((json_t *)a, key, value)
		compare_member(name, key, value, json_object_get(b, key), out);
	json_object_foreach((json_t *)b, key, value) if (!json_object_get(a, key))
		compare_member(name, key, NULL, value, out);
}

json_t *ckpt_diff_json(const json_t *a, const json_t *b)
{
	json_t *out = json_array();
	compare_json("", a, b, &out);
	return out;
}
