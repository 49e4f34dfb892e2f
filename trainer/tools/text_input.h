/* SPDX-License-Identifier: Apache-2.0 */
/* Reads texts: a file is a document, or each of its lines is a JSON object with one (JSONL). */
#ifndef MUSTER_TEXT_INPUT_H
#define MUSTER_TEXT_INPUT_H

#include <signal.h>
#include <stddef.h>

#include "common/err.h"

/* What takes the texts. Each function returns -1 with err set to end the reading. */
struct text_taker {
	int (*add)(void *arg, const char *text, size_t size, struct err *err);
	int (*end_document)(void *arg, struct err *err);
	void (*progress)(void *arg, size_t bytes); /* of the input that have been read */
	void *arg;
	const volatile sig_atomic_t *caught; /* a signal that ends the reading; 0: none */
};

/* Reads a file; "-": standard input. `field`: the member of JSONL that has the text; NULL: the file
 * is the text. Errors name the file, and the line of JSONL. */
int text_input_read(const char *name, const char *field, const struct text_taker *taker,
	struct err *err);

#endif
