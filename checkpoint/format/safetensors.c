/* SPDX-License-Identifier: Apache-2.0 */
/* The safetensors header, strict in both directions: every reader accepts what we write, and what
 * we read is checked by each rule of the reference parser before any data is used. */
#include "checkpoint/format/safetensors.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/record.h"
#include "common/auto.h"
#include "common/bytes.h"

#define METADATA_KEY "__metadata__"

static const struct {
	const char *name;
	unsigned bits;
} dtypes[] = {
	[SAFETENSORS_BOOL] = { "BOOL", 8 },
	[SAFETENSORS_F4] = { "F4", 4 },
	[SAFETENSORS_F6_E2M3] = { "F6_E2M3", 6 },
	[SAFETENSORS_F6_E3M2] = { "F6_E3M2", 6 },
	[SAFETENSORS_U8] = { "U8", 8 },
	[SAFETENSORS_I8] = { "I8", 8 },
	[SAFETENSORS_F8_E5M2] = { "F8_E5M2", 8 },
	[SAFETENSORS_F8_E4M3] = { "F8_E4M3", 8 },
	[SAFETENSORS_F8_E8M0] = { "F8_E8M0", 8 },
	[SAFETENSORS_F8_E4M3FNUZ] = { "F8_E4M3FNUZ", 8 },
	[SAFETENSORS_F8_E5M2FNUZ] = { "F8_E5M2FNUZ", 8 },
	[SAFETENSORS_I16] = { "I16", 16 },
	[SAFETENSORS_U16] = { "U16", 16 },
	[SAFETENSORS_F16] = { "F16", 16 },
	[SAFETENSORS_BF16] = { "BF16", 16 },
	[SAFETENSORS_I32] = { "I32", 32 },
	[SAFETENSORS_U32] = { "U32", 32 },
	[SAFETENSORS_F32] = { "F32", 32 },
	[SAFETENSORS_C64] = { "C64", 64 },
	[SAFETENSORS_F64] = { "F64", 64 },
	[SAFETENSORS_I64] = { "I64", 64 },
	[SAFETENSORS_U64] = { "U64", 64 },
};

#define DTYPES (sizeof dtypes / sizeof dtypes[0])

const char *safetensors_dtype_name(enum safetensors_dtype dtype)
{
	return dtypes[dtype].name;
}

unsigned safetensors_dtype_bits(enum safetensors_dtype dtype)
{
	return dtypes[dtype].bits;
}

bool safetensors_is_float(enum safetensors_dtype dtype)
{
	return dtype == SAFETENSORS_F32 || dtype == SAFETENSORS_F16 || dtype == SAFETENSORS_BF16;
}

void safetensors_to_fp32(enum safetensors_dtype dtype, const void *from, size_t count, float *to)
{
	const char *bytes = from;
	if (dtype == SAFETENSORS_F32)
		memcpy(to, from, count * sizeof *to);
	else
		for (size_t i = 0; i < count; i++) {
			uint16_t bits = bytes_le16(bytes + 2 * i);
			to[i] =
				dtype == SAFETENSORS_BF16 ? bytes_bf16_to_float(bits) : bytes_f16_to_float(bits);
		}
}

int safetensors_dtype_parse(const char *name, enum safetensors_dtype *dtype)
{
	for (size_t i = 0; i < DTYPES; i++)
		if (strcmp(dtypes[i].name, name) == 0) {
			*dtype = (enum safetensors_dtype)i;
			return 0;
		}
	return -1;
}

int safetensors_elements(const int64_t *shape, int dims, uint64_t *elements)
{
	int64_t product = 1;
	for (int i = 0; i < dims; i++)
		if (shape[i] < 0 || __builtin_mul_overflow(product, shape[i], &product))
			return -1;
	*elements = (uint64_t)product;
	return 0;
}

/* Sets *bytes to the size of the tensor's elements; -1 with the reason when there is no valid
 * one. */
static int tensor_bytes(const struct safetensors_tensor *tensor, uint64_t *bytes, struct err *err)
{
	uint64_t elements, bits;
	if (safetensors_elements(tensor->shape, tensor->dims, &elements) < 0
		|| __builtin_mul_overflow(elements, (uint64_t)dtypes[tensor->dtype].bits, &bits))
		return err_fail(err, EXIT_DATA, "safetensors: the size of tensor %s is out of range",
			tensor->name);
	if (bits % 8)
		return err_fail(err, EXIT_DATA, "safetensors: tensor %s does not end at a whole byte",
			tensor->name);
	*bytes = bits / 8;
	return 0;
}

/* ---- encode ---- */

static json_t *encode_notes(const struct safetensors_note *notes, size_t count)
{
	json_t *object = json_object();
	for (size_t i = 0; i < count; i++)
		if (json_object_set_new(object, notes[i].key, json_string(notes[i].value)) < 0) {
			json_decref(object);
			return NULL;
		}
	return object;
}

static json_t *encode_tensor(const struct safetensors_tensor *tensor)
{
	return json_pack("{s:s, s:o, s:[I, I]}", "dtype", dtypes[tensor->dtype].name, "shape",
		record_integers(tensor->shape, tensor->dims), "data_offsets", (json_int_t)tensor->begin,
		(json_int_t)tensor->end);
}

static int add_tensor(json_t *header, struct safetensors_tensor *tensor, uint64_t *offset,
	struct err *err)
{
	uint64_t bytes;
	if (tensor->dims < 0 || tensor->dims > SAFETENSORS_DIMS)
		return err_set(err, "safetensors: tensor %s has %d dimensions", tensor->name, tensor->dims);
	if (tensor_bytes(tensor, &bytes, err) < 0)
		return -1;
	tensor->begin = *offset;
	if (__builtin_add_overflow(*offset, bytes, offset) || *offset > INT64_MAX)
		return err_set(err, "safetensors: the file with tensor %s would be too large",
			tensor->name);
	tensor->end = *offset;
	if (strcmp(tensor->name, METADATA_KEY) == 0 || json_object_get(header, tensor->name))
		return err_set(err, "safetensors: the name %s is reserved or used twice", tensor->name);
	if (json_object_set_new(header, tensor->name, encode_tensor(tensor)) < 0)
		return err_set(err,
			"safetensors: couldn't encode tensor %s: its name is not UTF-8, or no memory",
			tensor->name);
	return 0;
}

/* Puts the length in front of the text, and spaces after it so that the data begins at a multiple
 * of SAFETENSORS_ALIGN. */
static int frame(const char *text, char **prefix, size_t *prefix_size, struct err *err)
{
	size_t length = strlen(text);
	size_t total = (8 + length + SAFETENSORS_ALIGN - 1) / SAFETENSORS_ALIGN * SAFETENSORS_ALIGN;
	if (total - 8 > SAFETENSORS_HEADER_MAX)
		return err_set(err, "safetensors: a header of %zu bytes is more than readers accept",
			total - 8);
	char *bytes = malloc(total);
	if (!bytes)
		return err_set(err, "safetensors: no memory for a header of %zu bytes", total);
	bytes_put_le64(bytes, total - 8);
	memcpy(bytes + 8, text, length);
	memset(bytes + 8 + length, ' ', total - 8 - length);
	*prefix = bytes;
	*prefix_size = total;
	return 0;
}

int safetensors_encode(struct safetensors_tensor *tensors, size_t count,
	const struct safetensors_note *notes, size_t note_count, char **prefix, size_t *prefix_size,
	uint64_t *data_size, struct err *err)
{
	json_t *header = json_object();
	uint64_t offset = 0;
	int result = 0;
	if (note_count
		&& json_object_set_new(header, METADATA_KEY, encode_notes(notes, note_count)) < 0)
		result = err_set(err, "safetensors: couldn't encode the metadata: not UTF-8, or no memory");
	for (size_t i = 0; result == 0 && i < count; i++)
		result = add_tensor(header, &tensors[i], &offset, err);
	AUTO_FREE char *text = result == 0 ? record_dump(header, JSON_COMPACT) : NULL;
	json_decref(header);
	if (result < 0)
		return -1;
	if (!text)
		return err_set(err, "safetensors: no memory for the header");
	*data_size = offset;
	return frame(text, prefix, prefix_size, err);
}

/* ---- parse ---- */

int safetensors_prefix_size(const void *first_eight, uint64_t file_size, uint64_t *size,
	struct err *err)
{
	if (file_size < 8)
		return err_fail(err, EXIT_DATA,
			"safetensors: the file has %" PRIu64 " bytes, too few for a header", file_size);
	uint64_t length = bytes_le64(first_eight);
	if (length > SAFETENSORS_HEADER_MAX)
		return err_fail(err, EXIT_DATA, "safetensors: a header of %" PRIu64 " bytes is too large",
			length);
	if (8 + length > file_size)
		return err_fail(err, EXIT_DATA,
			"safetensors: the header of %" PRIu64 " bytes is longer than the file", length);
	*size = 8 + length;
	return 0;
}

/* Reads a JSON array of integers ≥ 0 into `values`; returns their number, or -1. */
static int parse_integers(const json_t *array, int64_t *values, size_t room)
{
	size_t count = json_array_size(array);
	if (!json_is_array(array) || count > room)
		return -1;
	for (size_t i = 0; i < count; i++) {
		const json_t *value = json_array_get(array, i);
		if (!json_is_integer(value) || json_integer_value(value) < 0)
			return -1;
		values[i] = json_integer_value(value);
	}
	return (int)count;
}

static int parse_tensor(const char *name, const json_t *info, struct safetensors_tensor *tensor,
	struct err *err)
{
	int64_t offsets[2];
	const char *dtype = json_string_value(json_object_get(info, "dtype"));
	/* An unknown member may give the bytes another meaning. */
	if (json_object_size(info) > 3)
		return err_fail(err, EXIT_DATA,
			"safetensors: tensor %s has more members than dtype, shape and data_offsets", name);
	if (!dtype || safetensors_dtype_parse(dtype, &tensor->dtype) < 0)
		return err_fail(err, EXIT_DATA, "safetensors: tensor %s has no known dtype", name);
	tensor->dims = parse_integers(json_object_get(info, "shape"), tensor->shape, SAFETENSORS_DIMS);
	if (tensor->dims < 0)
		return err_fail(err, EXIT_DATA, "safetensors: tensor %s has no valid shape", name);
	if (parse_integers(json_object_get(info, "data_offsets"), offsets, 2) != 2
		|| offsets[1] < offsets[0])
		return err_fail(err, EXIT_DATA, "safetensors: tensor %s has no valid data_offsets", name);
	tensor->begin = (uint64_t)offsets[0];
	tensor->end = (uint64_t)offsets[1];
	tensor->name = strdup(name);
	if (!tensor->name)
		return err_set(err, "safetensors: no memory");
	uint64_t bytes;
	if (tensor_bytes(tensor, &bytes, err) < 0)
		return -1;
	if (bytes != tensor->end - tensor->begin)
		return err_fail(err, EXIT_DATA,
			"safetensors: tensor %s needs %" PRIu64 " bytes and has %" PRIu64, name, bytes,
			tensor->end - tensor->begin);
	return 0;
}

static int parse_notes(struct safetensors *file, json_t *object, struct err *err)
{
	const char *key;
	json_t *value;
	if (!json_is_object(object))
		return err_fail(err, EXIT_DATA, "safetensors: " METADATA_KEY " is not an object");
	file->notes = calloc(json_object_size(object) + 1, sizeof *file->notes);
	if (!file->notes)
		return err_set(err, "safetensors: no memory");
	json_object_foreach(object, key, value)
	{
		if (!json_is_string(value))
			return err_fail(err, EXIT_DATA,
				"safetensors: " METADATA_KEY " entry %s is not a string", key);
		struct safetensors_note *note = &file->notes[file->note_count++];
		note->key = strdup(key);
		note->value = strdup(json_string_value(value));
		if (!note->key || !note->value)
			return err_set(err, "safetensors: no memory");
	}
	return 0;
}

static int by_offset(const void *a, const void *b)
{
	const struct safetensors_tensor *x = a, *y = b;
	if (x->begin != y->begin)
		return x->begin < y->begin ? -1 : 1;
	if (x->end != y->end)
		return x->end < y->end ? -1 : 1;
	return strcmp(x->name, y->name);
}

/* Sorts the tensors by offset. Refuses holes, overlap, and a file whose data does not end with the
 * last tensor. */
static int check_layout(struct safetensors *file, uint64_t file_size, struct err *err)
{
	qsort(file->tensors, file->count, sizeof *file->tensors, by_offset);
	uint64_t offset = 0;
	for (size_t i = 0; i < file->count; i++) {
		if (file->tensors[i].begin != offset)
			return err_fail(err, EXIT_DATA,
				"safetensors: tensor %s begins at %" PRIu64 ", not at %" PRIu64
				" where the one before ends",
				file->tensors[i].name, file->tensors[i].begin, offset);
		offset = file->tensors[i].end;
	}
	file->data_size = offset;
	if (offset != file_size - file->data_start)
		return err_fail(err, EXIT_DATA,
			"safetensors: the file has %" PRIu64 " bytes of data, its tensors %" PRIu64,
			file_size - file->data_start, offset);
	return 0;
}

/* Whether there is a minus sign outside the strings: jansson reads -0 as 0, but the reference
 * parser refuses it. `text` is valid JSON. */
static bool has_minus(const char *text, size_t size)
{
	bool inside = false;
	for (size_t i = 0; i < size; i++) {
		if (inside && text[i] == '\\')
			i++;
		else if (text[i] == '"')
			inside = !inside;
		else if (!inside && text[i] == '-')
			return true;
	}
	return false;
}

static int parse_header(struct safetensors *file, json_t *header, struct err *err)
{
	const char *name;
	json_t *value;
	if (!json_is_object(header))
		return err_fail(err, EXIT_DATA, "safetensors: the header is not an object");
	file->tensors = calloc(json_object_size(header) + 1, sizeof *file->tensors);
	if (!file->tensors)
		return err_set(err, "safetensors: no memory");
	json_object_foreach(header, name, value)
	{
		if (strcmp(name, METADATA_KEY) == 0) {
			if (parse_notes(file, value, err) < 0)
				return -1;
		} else if (parse_tensor(name, value, &file->tensors[file->count++], err) < 0) {
			return -1;
		}
	}
	return 0;
}

static json_t *load_header(const char *text, size_t size, struct err *err)
{
	if (size == 0 || text[0] != '{') {
		err_fail(err, EXIT_DATA, "safetensors: the header does not begin with '{'");
		return NULL;
	}
	while (text[size - 1] == ' ') /* padding makes up most of a small file's header */
		size--;
	return record_parse(text, size, JSON_REJECT_DUPLICATES, "safetensors: the header", err);
}

struct safetensors *safetensors_parse(const void *bytes, size_t size, uint64_t file_size,
	struct err *err)
{
	uint64_t prefix;
	if (size < 8 && file_size >= 8) {
		err_set(err, "safetensors: the header's first 8 bytes are missing");
		return NULL;
	}
	if (safetensors_prefix_size(bytes, file_size, &prefix, err) < 0)
		return NULL;
	if (size < prefix) {
		err_set(err, "safetensors: only %zu of the header's %" PRIu64 " bytes are there", size,
			prefix);
		return NULL;
	}
	const char *text = (const char *)bytes + 8;
	json_t *header = load_header(text, (size_t)prefix - 8, err);
	if (!header)
		return NULL;
	struct safetensors *file = calloc(1, sizeof *file);
	int result = file ? 0 : err_set(err, "safetensors: no memory");
	if (file) {
		file->data_start = prefix;
		result = parse_header(file, header, err);
	}
	if (result == 0 && has_minus(text, (size_t)prefix - 8))
		result = err_fail(err, EXIT_DATA, "safetensors: the header has a negative number");
	if (result == 0)
		result = check_layout(file, file_size, err);
	json_decref(header);
	if (result == 0)
		return file;
	safetensors_destroy(file);
	return NULL;
}

void safetensors_destroy(struct safetensors *file)
{
	if (!file)
		return;
	for (size_t i = 0; i < file->count; i++)
		free(file->tensors[i].name);
	for (size_t i = 0; i < file->note_count; i++) {
		free(file->notes[i].key);
		free(file->notes[i].value);
	}
	free(file->tensors);
	free(file->notes);
	free(file);
}

const struct safetensors_tensor *safetensors_find(const struct safetensors *file, const char *name)
{
	for (size_t i = 0; i < file->count; i++)
		if (strcmp(file->tensors[i].name, name) == 0)
			return &file->tensors[i];
	return NULL;
}

const char *safetensors_note(const struct safetensors *file, const char *key)
{
	for (size_t i = 0; i < file->note_count; i++)
		if (strcmp(file->notes[i].key, key) == 0)
			return file->notes[i].value;
	return NULL;
}
