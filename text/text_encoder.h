/* SPDX-License-Identifier: Apache-2.0 */
/* Encodes documents of any length on all cores: cuts them where their tokens do not change by it,
 * and hands the tokens on in the order of the text. */
#ifndef MUSTER_TEXT_ENCODER_H
#define MUSTER_TEXT_ENCODER_H

#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "text/tokenizer.h"

struct text_encoder;

/* Takes the next tokens; -1 with err set ends the work. */
typedef int text_encoder_sink(void *arg, const int32_t *ids, size_t count, struct err *err);

/* OpenMP's threads encode. `separator` is the token that follows each document; -1: none. NULL when
 * out of memory. */
struct text_encoder *text_encoder_create(const struct tokenizer *tokenizer, int32_t separator,
	text_encoder_sink *sink, void *arg);
void text_encoder_destroy(struct text_encoder *encoder);

/* Adds text to the document. What is not UTF-8 is named by its offset in the document, at the
 * latest by text_encoder_flush. */
int text_encoder_add(struct text_encoder *encoder, const char *text, size_t size, struct err *err);

/* The document is whole; what is added next belongs to another one. */
int text_encoder_end_document(struct text_encoder *encoder, struct err *err);

/* All tokens of what was added have gone to the sink after this. The document must be whole. */
int text_encoder_flush(struct text_encoder *encoder, struct err *err);

#endif
