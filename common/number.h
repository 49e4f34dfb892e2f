/* SPDX-License-Identifier: Apache-2.0 */
/* Strict parsing of numbers from outside (an option, an environment variable, a file): the whole
 * text or nothing. */
#ifndef MUSTER_NUMBER_H
#define MUSTER_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct argp_state; /* of argp.h */

/* Decimal digits, after a minus if `least` is below 0; no space, no plus, nothing after them.
 * False, with *value unchanged, for anything else and for a number outside `least` to `most`. */
bool number_whole(const char *text, int64_t least, int64_t most, int64_t *value);

/* The same for all 64 bits, without leading zeros. */
bool number_u64(const char *text, uint64_t *value);

/* The number that an option of argp's has; argp_error() for what is none in that range. */
int64_t number_option(struct argp_state *state, const char *name, const char *text, int64_t least,
	int64_t most);

/* A finite number as strtod reads it, from `least` to `most`. */
bool number_real(const char *text, double least, double most, double *value);

/* Bytes: "4096", "4GiB", "500MB"; a bare K, M, G or T is binary. */
bool number_bytes(const char *text, int64_t least, int64_t most, int64_t *value);

/* The shortest text that number_bytes reads as `value`, which is at least 0. It fits into 24 bytes.
 * Returns `out`. */
char *number_bytes_text(int64_t value, char *out, size_t size);

#endif
