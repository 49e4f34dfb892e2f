/* SPDX-License-Identifier: Apache-2.0 */
/* The header of a safetensors file (https://github.com/huggingface/safetensors, README "Format"):
 * encode and parse, as pure functions over bytes. A file is 8 bytes N (little-endian), N bytes of
 * JSON, and the data. */
#ifndef MUSTER_SAFETENSORS_H
#define MUSTER_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

#define SAFETENSORS_DIMS 8                  /* more dimensions than any of our tensors has */
#define SAFETENSORS_HEADER_MAX 100000000ULL /* largest N; the limit of the reference parser */
#define SAFETENSORS_ALIGN 4096              /* 8 + N is a multiple of this in the files we write */

/* In the order of the table in safetensors.c. */
enum safetensors_dtype {
	SAFETENSORS_BOOL,
	SAFETENSORS_F4,
	SAFETENSORS_F6_E2M3,
	SAFETENSORS_F6_E3M2,
	SAFETENSORS_U8,
	SAFETENSORS_I8,
	SAFETENSORS_F8_E5M2,
	SAFETENSORS_F8_E4M3,
	SAFETENSORS_F8_E8M0,
	SAFETENSORS_F8_E4M3FNUZ,
	SAFETENSORS_F8_E5M2FNUZ,
	SAFETENSORS_I16,
	SAFETENSORS_U16,
	SAFETENSORS_F16,
	SAFETENSORS_BF16,
	SAFETENSORS_I32,
	SAFETENSORS_U32,
	SAFETENSORS_F32,
	SAFETENSORS_C64,
	SAFETENSORS_F64,
	SAFETENSORS_I64,
	SAFETENSORS_U64,
};

/* "F32" and so on. */
const char *safetensors_dtype_name(enum safetensors_dtype dtype);

/* -1 when no dtype has that name. */
int safetensors_dtype_parse(const char *name, enum safetensors_dtype *dtype);

/* Bits of one element; some dtypes have 4 or 6. */
unsigned safetensors_dtype_bits(enum safetensors_dtype dtype);

/* Whether safetensors_to_fp32 can convert it: F32, F16 and BF16. */
bool safetensors_is_float(enum safetensors_dtype dtype);

/* Converts `count` elements of such a dtype, little-endian and at any alignment, to fp32. */
void safetensors_to_fp32(enum safetensors_dtype dtype, const void *from, size_t count, float *to);

struct safetensors_tensor {
	char *name;
	enum safetensors_dtype dtype;
	int dims; /* 0 for a scalar */
	int64_t shape[SAFETENSORS_DIMS];
	uint64_t begin, end; /* in bytes from the beginning of the data */
};

/* One entry of __metadata__. */
struct safetensors_note {
	char *key, *value;
};

struct safetensors {
	uint64_t data_start;                /* 8 + N */
	uint64_t data_size;                 /* bytes; the end of the last tensor */
	struct safetensors_tensor *tensors; /* by offset, without holes or overlap */
	size_t count;
	struct safetensors_note *notes;
	size_t note_count;
};

/* The number of elements of a shape; -1 when the product does not fit in 63 bits or a dimension is
 * negative. */
int safetensors_elements(const int64_t *shape, int dims, uint64_t *elements);

/* Assigns begin and end to `tensors` in the given order, and encodes everything before the data:
 * the length, the JSON with `notes` as __metadata__, and spaces up to a multiple of
 * SAFETENSORS_ALIGN. *prefix is malloc'ed and the caller's; *data_size is the number of bytes that
 * must follow it. 0, or -1 with err set. */
int safetensors_encode(struct safetensors_tensor *tensors, size_t count,
	const struct safetensors_note *notes, size_t note_count, char **prefix, size_t *prefix_size,
	uint64_t *data_size, struct err *err);

/* Gets 8 + N from the first eight bytes of a file of `file_size` bytes, so that a reader knows how
 * much to read. */
int safetensors_prefix_size(const void *first_eight, uint64_t file_size, uint64_t *size,
	struct err *err);

/* Parses the first `size` bytes (at least 8 + N) of a file of `file_size` bytes. Applies every rule
 * of the reference parser, and the rules of the README that the parser leaves out (the first byte
 * is '{', no duplicate keys). Freed by safetensors_destroy; NULL on error, status EXIT_DATA. */
struct safetensors *safetensors_parse(const void *bytes, size_t size, uint64_t file_size,
	struct err *err);
void safetensors_destroy(struct safetensors *file);

/* NULL when nothing has that name. */
const struct safetensors_tensor *safetensors_find(const struct safetensors *file, const char *name);
const char *safetensors_note(const struct safetensors *file, const char *key);

#endif
