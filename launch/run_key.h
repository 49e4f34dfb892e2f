/* SPDX-License-Identifier: Apache-2.0 */
/* What all ranks of a run compute alike, without an exchange: where they listen, and the key that
 * authenticates them to each other (doc/presence.md, doc/bootstrap.md). */
#ifndef MUSTER_RUN_KEY_H
#define MUSTER_RUN_KEY_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "common/hash.h"

#define RUN_KEY "MUSTER_STEP_KEY" /* the variable with the step's key, if it has one */

/* A run, for its ranks. */
struct run_key {
	uint64_t number; /* RUN */
	bool keyed;      /* its ranks, and nobody else, know the key */
	unsigned char key[16];
};

/* RUN, from a text that is the same on all ranks of this run and on no others. */
uint64_t run_number(const char *text);

/* The port, for UDP and TCP, of the rank that has `place` lower ranks on its node. */
int run_port(uint64_t run, int place);

/* Parses hexadecimal digits; -1 with status EXIT_USAGE if they are not exactly a key. */
int run_key_read(const char *digits, unsigned char key[16], struct err *err);

/* Draws a key of random bits, and writes it in digits, too. */
int run_key_draw(unsigned char key[16], char digits[HASH_HEX_SIZE], struct err *err);

#endif
