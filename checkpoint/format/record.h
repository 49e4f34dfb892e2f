/* SPDX-License-Identifier: Apache-2.0 */
/* JSON texts and their members, checked as they are read. */
#ifndef MUSTER_RECORD_H
#define MUSTER_RECORD_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "common/err.h"

/* Parses a text, with jansson's `flags`. NULL where it is not valid (EXIT_DATA, "WHAT is not valid
 * JSON: …") or memory is short (EXIT_LOST), which is no fault of the text. */
json_t *record_parse(const char *text, size_t size, size_t flags, const char *what,
	struct err *err);

/* Whether it is an integer from `least` to `most`. NULL is none. */
bool record_in_range(const json_t *value, json_int_t least, json_int_t most);

/* Copies a text of less than `size` bytes. False, and `out` has what fits, when it is longer or no
 * text. */
bool record_text(char *out, size_t size, const json_t *value);

#endif
