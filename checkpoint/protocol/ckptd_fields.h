/* SPDX-License-Identifier: Apache-2.0 */
/* Tables that describe JSON objects. The same row writes, reads and checks a member, so that the
 * two directions can't differ. */
#ifndef MUSTER_CKPTD_FIELDS_H
#define MUSTER_CKPTD_FIELDS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

#define CKPTD_NO_OFFSET (-1) /* no offset: another part writes the data */
#define CKPTD_NO_SHAPE (-1)  /* the number of members of a shape that is null */

enum ckptd_field_kind {
	FIELD_INTEGER, /* int64_t, least … most; where `null` is set, null is CKPTD_NO_OFFSET */
	FIELD_U64,     /* uint64_t, as text */
	FIELD_REAL,    /* double, NAN is null */
	FIELD_BOOL,
	FIELD_TEXT,   /* const char *, NULL is null; at least `least` bytes long */
	FIELD_TOKEN,  /* the same, with 32 digits */
	FIELD_STATUS, /* enum exit_status */
	FIELD_REASON, /* the text of a struct err, whose status comes in the row before */
	FIELD_LINES,  /* const char **, with their number */
	FIELD_DTYPE,  /* enum safetensors_dtype */
	FIELD_SHAPE,  /* int64_t[SAFETENSORS_DIMS], with their number, an int; where `null` is set, null
					 is CKPTD_NO_SHAPE */
	FIELD_OFFSETS, /* int64_t[SNAPSHOT_STATES]; null if the first is CKPTD_NO_OFFSET */
	FIELD_ROWS,    /* an array of structs, with their number */
};

struct ckptd_field {
	const char *name;
	enum ckptd_field_kind kind;
	size_t offset;
	int64_t least, most;
	bool null;
	size_t count; /* offset of the member with the number of LINES, SHAPE or ROWS */
	const struct ckptd_field *rows; /* the table of ROWS */
	size_t row_size;
};

/* The table ends with a row without a name. NULL on error: a text is missing or not UTF-8, or out
 * of memory. */
json_t *ckptd_fields_encode(const struct ckptd_field *fields, const void *from, struct err *err);

/* Refuses a member that is missing, has another type, or is out of its range (-1, status
 * EXIT_DATA). The caller zeroes `to` before. Texts in `to` are borrowed from the object. The arrays
 * of LINES and ROWS are malloc'ed and the caller's, even after an error. */
int ckptd_fields_decode(const struct ckptd_field *fields, const json_t *object, void *to,
	struct err *err);

#endif
