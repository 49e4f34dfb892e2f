/* SPDX-License-Identifier: Apache-2.0 */
/* JSON: parsing that checks, and writing and building that is whole or fails, also where memory is
 * short. */
#ifndef MUSTER_RECORD_H
#define MUSTER_RECORD_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

/* Parses a text with jansson's `flags`. NULL when it is not valid (EXIT_DATA, "WHAT is not valid
 * JSON: …"), or when out of memory (EXIT_LOST, since the text is not at fault). */
json_t *record_parse(const char *text, size_t size, size_t flags, const char *what,
	struct err *err);

/* The value as a text, which the caller frees; NULL when there was no memory, or `value` is NULL.
 */
char *record_dump(const json_t *value, size_t flags);

/* Whether `value` is an integer from `least` to `most`. NULL is not. */
bool record_in_range(const json_t *value, json_int_t least, json_int_t most);

/* Copies a text of less than `size` bytes. False when `value` is longer, of which `out` then has
 * the beginning, or no text. */
bool record_text(char *out, size_t size, const json_t *value);

/* For what is built piece by piece: each puts a value into the array or the object, and returns
 * that. NULL when there is no memory, or `value` is NULL, as jansson has it for a text that is not
 * UTF-8; and NULL when that is given. Both references are taken. */
json_t *record_append(json_t *array, json_t *value);
json_t *record_set(json_t *object, const char *name, json_t *value);

/* The same with all members of another object. */
json_t *record_update(json_t *object, json_t *more);

/* An array of them; NULL when there is no memory. */
json_t *record_integers(const int64_t *values, int count);

#endif
