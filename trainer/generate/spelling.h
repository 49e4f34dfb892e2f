/* SPDX-License-Identifier: Apache-2.0 */
/* How a model's tokens are written as text: by a tokenizer, or as bytes. */
#ifndef MUSTER_SPELLING_H
#define MUSTER_SPELLING_H

#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "text/token_list.h"

#define SPELLING_BYTES 256 /* vocabulary of a model whose tokens are bytes */

struct spelling;

/* `path` names the tokenizer; NULL: the tokenizer.json in the directory `beside` (NULL: none), if
 * there is one, else tokens are bytes, where `vocabulary` is theirs. NULL on error, with EXIT_USAGE
 * where none fits the model: the remedy is a tokenizer, or `otherwise`, which may be "". */
struct spelling *spelling_open(const char *path, const char *beside, int64_t vocabulary,
	const char *otherwise, struct err *err);

/* `spelling` may be NULL. */
void spelling_close(struct spelling *spelling);

/* Appends the tokens of a text, as they are made of a training's text. */
int spelling_encode(const struct spelling *spelling, const char *text, size_t size,
	struct token_list *list, struct err *err);

/* The bytes that a token stands for, not necessarily whole characters; NULL: none. */
const char *spelling_bytes(const struct spelling *spelling, int32_t token, size_t *size);

#endif
