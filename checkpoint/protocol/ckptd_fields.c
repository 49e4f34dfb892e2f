/* SPDX-License-Identifier: Apache-2.0 */
/* Converts structs to JSON and back, one table row for each member. */
#include "checkpoint/protocol/ckptd_fields.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/record.h"
#include "checkpoint/format/safetensors.h"
#include "checkpoint/format/snapshot.h"
#include "common/hash.h"
#include "common/number.h"

/* ---- encode ---- */

static json_t *encode_rows(const struct ckptd_field *field, const char *row, size_t count,
	struct err *err)
{
	json_t *array = json_array();
	for (size_t i = 0; i < count; i++) {
		json_t *object = ckptd_fields_encode(field->rows, row + i * field->row_size, err);
		if (json_array_append_new(array, object) < 0) {
			json_decref(array);
			return NULL;
		}
	}
	return array;
}

static json_t *encode_lines(const char *const *lines, size_t count)
{
	json_t *array = json_array();
	for (size_t i = 0; i < count; i++)
		array = record_append(array, json_string(lines[i]));
	return array;
}

static json_t *encode_u64(uint64_t value)
{
	char digits[24];
	snprintf(digits, sizeof digits, "%" PRIu64, value);
	return json_string(digits);
}

static json_t *encode_field(const struct ckptd_field *field, const void *from, struct err *err)
{
	const char *at = (const char *)from + field->offset,
			   *counted = (const char *)from + field->count;
	int64_t integer = 0;
	switch (field->kind) {
	case FIELD_STATUS: return json_integer(*(const enum exit_status *)(const void *)at);
	case FIELD_REASON: return json_string(((const struct err *)(const void *)at)->text);
	case FIELD_INTEGER:
		memcpy(&integer, at, sizeof integer);
		return field->null && integer == CKPTD_NO_OFFSET ? json_null() : json_integer(integer);
	case FIELD_U64: return encode_u64(*(const uint64_t *)(const void *)at);
	case FIELD_REAL: {
		double real = *(const double *)(const void *)at;
		return isfinite(real) ? json_real(real) : json_null();
	}
	case FIELD_BOOL: return json_boolean(*(const bool *)at);
	case FIELD_TEXT:
	case FIELD_TOKEN: {
		const char *text = *(const char *const *)(const void *)at;
		return text ? json_string(text) : field->null ? json_null() : NULL;
	}
	case FIELD_LINES:
		return encode_lines(*(const char *const *const *)(const void *)at,
			*(const size_t *)(const void *)counted);
	case FIELD_DTYPE:
		return json_string(
			safetensors_dtype_name(*(const enum safetensors_dtype *)(const void *)at));
	case FIELD_SHAPE: {
		int count = *(const int *)(const void *)counted;
		return count == CKPTD_NO_SHAPE ? json_null()
									   : record_integers((const int64_t *)(const void *)at, count);
	}
	case FIELD_OFFSETS:
		memcpy(&integer, at, sizeof integer);
		return integer == CKPTD_NO_OFFSET
			? json_null()
			: record_integers((const int64_t *)(const void *)at, SNAPSHOT_STATES);
	case FIELD_ROWS:
		return encode_rows(field, *(const char *const *)(const void *)at,
			*(const size_t *)(const void *)counted, err);
	}
	return NULL;
}

json_t *ckptd_fields_encode(const struct ckptd_field *fields, const void *from, struct err *err)
{
	json_t *object = json_object();
	for (const struct ckptd_field *field = fields; field->name; field++)
		if (json_object_set_new(object, field->name, encode_field(field, from, err)) < 0) {
			err_set(err,
				"protocol: couldn't encode \"%s\": it is missing or not UTF-8, or there is no "
				"memory",
				field->name);
			json_decref(object);
			return NULL;
		}
	return object;
}

/* ---- decode ---- */

static int wrong(const struct ckptd_field *field, const char *what, struct err *err)
{
	return err_fail(err, EXIT_DATA, "\"%s\" %s", field->name, what);
}

static int decode_integer(const struct ckptd_field *field, const json_t *value, int64_t *out,
	struct err *err)
{
	if (!json_is_integer(value))
		return wrong(field, "is no integer", err);
	*out = json_integer_value(value);
	if (*out < field->least || *out > field->most)
		return wrong(field, "is out of its range", err);
	return 0;
}

static int decode_u64(const struct ckptd_field *field, const json_t *value, uint64_t *out,
	struct err *err)
{
	const char *text = json_string_value(value);
	*out = 0;
	if (!text || !number_u64(text, out))
		return wrong(field, "is not a number of 64 bits as text", err);
	return 0;
}

static int decode_text(const struct ckptd_field *field, const json_t *value, const char **out,
	struct err *err)
{
	struct hash128 ignored;
	*out = json_string_value(value);
	if (!*out)
		return wrong(field, "is no text", err);
	if (field->kind == FIELD_TOKEN && hash_parse(*out, &ignored) < 0)
		return wrong(field, "is not 32 hexadecimal digits", err);
	if ((int64_t)strlen(*out) < field->least)
		return wrong(field, "is empty", err);
	return 0;
}

static int decode_status(const struct ckptd_field *field, const json_t *value,
	enum exit_status *out, struct err *err)
{
	json_int_t status = json_is_integer(value) ? json_integer_value(value) : 0;
	*out = (enum exit_status)status;
	if (status != EXIT_FAULT && status != EXIT_USAGE && status != EXIT_DATA && status != EXIT_LOST)
		return wrong(field, "is no status of a failure", err);
	return 0;
}

static int decode_reason(const struct ckptd_field *field, const json_t *value, struct err *out,
	struct err *err)
{
	if (!json_is_string(value))
		return wrong(field, "is no text", err);
	err_fail(out, out->status, "%s", json_string_value(value));
	return 0;
}

static int decode_lines(const struct ckptd_field *field, const json_t *value, const char ***out,
	size_t *count, struct err *err)
{
	if (!json_is_array(value))
		return wrong(field, "is no array", err);
	*out = calloc(json_array_size(value) + 1, sizeof **out);
	if (!*out)
		return wrong(field, "needs more memory than there is", err);
	for (*count = 0; *count < json_array_size(value); ++*count) {
		(*out)[*count] = json_string_value(json_array_get(value, *count));
		if (!(*out)[*count])
			return wrong(field, "holds what is no text", err);
	}
	return 0;
}

/* Decodes an array of integers ≥ 0. *count is the maximum number on entry, and the actual number on
 * return. */
static int decode_integers(const struct ckptd_field *field, const json_t *value, int64_t *out,
	size_t *count, struct err *err)
{
	size_t size = json_array_size(value);
	if (!json_is_array(value) || size > *count)
		return wrong(field, "is no array, or has too many members", err);
	for (size_t i = 0; i < size; i++) {
		out[i] = json_is_integer(json_array_get(value, i))
			? json_integer_value(json_array_get(value, i))
			: -1;
		if (out[i] < 0)
			return wrong(field, "holds what is no integer, or below 0", err);
	}
	*count = size;
	return 0;
}

static int decode_shape(const struct ckptd_field *field, const json_t *value, int64_t *shape,
	int *dims, struct err *err)
{
	size_t count = SAFETENSORS_DIMS;
	if (decode_integers(field, value, shape, &count, err) < 0)
		return -1;
	*dims = (int)count;
	return 0;
}

static int decode_offsets(const struct ckptd_field *field, const json_t *value, int64_t *offsets,
	struct err *err)
{
	size_t count = SNAPSHOT_STATES;
	if (decode_integers(field, value, offsets, &count, err) < 0)
		return -1;
	return count == SNAPSHOT_STATES ? 0 : wrong(field, "does not hold three numbers", err);
}

static int decode_dtype(const struct ckptd_field *field, const json_t *value,
	enum safetensors_dtype *dtype, struct err *err)
{
	const char *name = json_string_value(value);
	return name && safetensors_dtype_parse(name, dtype) == 0
		? 0
		: wrong(field, "is no known type of elements", err);
}

static int decode_rows(const struct ckptd_field *field, const json_t *value, char **rows,
	size_t *count, struct err *err)
{
	if (!json_is_array(value) || (int64_t)json_array_size(value) < field->least)
		return wrong(field, "is no array, or empty", err);
	*rows = calloc(json_array_size(value) + 1, field->row_size);
	if (!*rows)
		return wrong(field, "needs more memory than there is", err);
	for (*count = 0; *count < json_array_size(value); ++*count)
		if (ckptd_fields_decode(field->rows, json_array_get(value, *count),
				*rows + *count * field->row_size, err)
			< 0)
			return err_prefix(err, "%s[%zu]", field->name, *count);
	return 0;
}

/* Stores the value that null means. */
static void decode_null(const struct ckptd_field *field, void *at, void *counted)
{
	const int64_t none[SNAPSHOT_STATES] = { CKPTD_NO_OFFSET, CKPTD_NO_OFFSET, CKPTD_NO_OFFSET };
	if (field->kind == FIELD_TEXT || field->kind == FIELD_TOKEN)
		*(const char **)at = NULL;
	else if (field->kind == FIELD_SHAPE)
		*(int *)counted = CKPTD_NO_SHAPE;
	else
		memcpy(at, none, field->kind == FIELD_OFFSETS ? sizeof none : sizeof none[0]);
}

static int decode_field(const struct ckptd_field *field, const json_t *value, void *to,
	struct err *err)
{
	void *at = (char *)to + field->offset, *counted = (char *)to + field->count;
	if (field->null && json_is_null(value)) {
		decode_null(field, at, counted);
		return 0;
	}
	switch (field->kind) {
	case FIELD_INTEGER: return decode_integer(field, value, at, err);
	case FIELD_STATUS: return decode_status(field, value, at, err);
	case FIELD_REASON: return decode_reason(field, value, at, err);
	case FIELD_U64: return decode_u64(field, value, at, err);
	case FIELD_REAL:
		*(double *)at = json_is_null(value) ? (double)NAN : json_number_value(value);
		return json_is_null(value) || json_is_number(value) ? 0 : wrong(field, "is no number", err);
	case FIELD_BOOL:
		*(bool *)at = json_is_true(value);
		return json_is_boolean(value) ? 0 : wrong(field, "is neither true nor false", err);
	case FIELD_TEXT:
	case FIELD_TOKEN: return decode_text(field, value, at, err);
	case FIELD_LINES: return decode_lines(field, value, at, counted, err);
	case FIELD_DTYPE: return decode_dtype(field, value, at, err);
	case FIELD_SHAPE: return decode_shape(field, value, at, counted, err);
	case FIELD_OFFSETS: return decode_offsets(field, value, at, err);
	case FIELD_ROWS: return decode_rows(field, value, at, counted, err);
	}
	return -1;
}

int ckptd_fields_decode(const struct ckptd_field *fields, const json_t *object, void *to,
	struct err *err)
{
	if (!json_is_object(object))
		return err_fail(err, EXIT_DATA, "it is no object");
	for (const struct ckptd_field *field = fields; field->name; field++) {
		const json_t *value = json_object_get(object, field->name);
		if (!value)
			return wrong(field, "is missing", err);
		if (decode_field(field, value, to, err) < 0)
			return -1;
	}
	return 0;
}
