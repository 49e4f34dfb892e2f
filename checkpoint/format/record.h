/* SPDX-License-Identifier: Apache-2.0 */
/* Checked parsing of JSON texts and of their members. */
#ifndef MUSTER_RECORD_H
#define MUSTER_RECORD_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "common/err.h"

/* Parses a text with jansson's `flags`. NULL when it is not valid (EXIT_DATA, "WHAT is not valid
 * JSON: …"), or when out of memory (EXIT_LOST, since the text is not at fault). */
json_t *record_parse(const char *text, size_t size, size_t flags, const char *what,
	struct err *err);

/* Whether `value` is an integer from `least` to `most`. NULL is not. */
bool record_in_range(const json_t *value, json_int_t least, json_int_t most);

/* Copies a text of less than `size` bytes. False when `value` is longer, of which `out` then has
 * the beginning, or no text. */
bool record_text(char *out, size_t size, const json_t *value);

#endif
