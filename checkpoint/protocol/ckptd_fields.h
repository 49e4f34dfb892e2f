/* SPDX-License-Identifier: Apache-2.0 */
/* JSON objects as tables that drive both directions: a member is written, read and checked by its
 * one row. */
#ifndef MUSTER_CKPTD_FIELDS_H
#define MUSTER_CKPTD_FIELDS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

#define CKPTD_NO_OFFSET (-1) /* of what another part writes */

enum ckptd_field_kind {
	FIELD_INTEGER, /* int64_t, least … most; where `null` is set, null is CKPTD_NO_OFFSET */
	FIELD_U64,     /* uint64_t, as text */
	FIELD_REAL,    /* double, NAN is null */
	FIELD_BOOL,
	FIELD_TEXT,    /* const char *, NULL is null; at least `least` bytes */
	FIELD_TOKEN,   /* the same, 32 digits */
	FIELD_STATUS,  /* int64_t */
	FIELD_LINES,   /* const char **, and their number */
	FIELD_DTYPE,   /* enum safetensors_dtype */
	FIELD_SHAPE,   /* int64_t[SAFETENSORS_DIMS], and int, their number */
	FIELD_OFFSETS, /* int64_t[SNAPSHOT_STATES]; null where the first is CKPTD_NO_OFFSET */
	FIELD_ROWS,    /* an array of structs, and their number */
};

struct ckptd_field {
	const char *name;
	enum ckptd_field_kind kind;
	size_t offset;
	int64_t least, most;
	bool null;
	size_t count;                   /* offset of the number of LINES, SHAPE and ROWS */
	const struct ckptd_field *rows; /* of ROWS */
	size_t row_size;
};

/* A table ends with a row without a name. NULL on error: a text that is missing or not UTF-8, or no
 * memory. */
json_t *ckptd_fields_encode(const struct ckptd_field *fields, const void *from, struct err *err);

/* Refuses a member that is missing, of another type, or outside its range; status EXIT_DATA. Texts
 * in `to` are borrowed from the object. The arrays of LINES and ROWS are malloc'ed, also when it
 * fails: the caller's, who has zeroed `to` before. */
int ckptd_fields_decode(const struct ckptd_field *fields, const json_t *object, void *to,
	struct err *err);

#endif
