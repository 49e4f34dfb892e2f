/* SPDX-License-Identifier: Apache-2.0 */
/* Members of the JSON records that a checkpoint directory holds beside its checkpoints, checked as they are read. */
#ifndef MUSTER_RECORD_H
#define MUSTER_RECORD_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* Whether it is an integer from `least` to `most`. NULL is none. */
bool record_in_range(const json_t *value, json_int_t least, json_int_t most);

/* Copies a text of less than `size` bytes. False, and `out` has what fits, when it is longer or no text. */
bool record_text(char *out, size_t size, const json_t *value);

#endif
