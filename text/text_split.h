/* SPDX-License-Identifier: Apache-2.0 */
/* The regular expression that cuts text into pieces before they are encoded: each match is a piece,
 * and so is what lies between two matches. */
#ifndef MUSTER_TEXT_SPLIT_H
#define MUSTER_TEXT_SPLIT_H

#include <stddef.h>

#include "common/err.h"

struct text_split;

/* Compiles a pattern as Oniguruma understands it with Ruby's syntax, which Hugging Face's
 * tokenizers use, over Unicode. EXIT_DATA for what PCRE2 can't take, or would take otherwise. */
struct text_split *text_split_create(const char *pattern, struct err *err);
void text_split_destroy(struct text_split *split);

/* The place of one thread in a text. */
struct text_split_work;
struct text_split_work *text_split_work_create(const struct text_split *split);
void text_split_work_destroy(struct text_split_work *work);

/* Returns the end of the piece that begins at `at`; the text is valid UTF-8. 0 with err set where
 * the search takes too much memory. A text is to be read from its beginning to its end. */
size_t text_split_next(const struct text_split *split, struct text_split_work *work,
	const char *text, size_t size, size_t at, struct err *err);

#endif
