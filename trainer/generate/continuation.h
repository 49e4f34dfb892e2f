/* SPDX-License-Identifier: Apache-2.0 */
/* How a text goes on: token after token is drawn from the decoder's logits and fed to it. */
#ifndef MUSTER_CONTINUATION_H
#define MUSTER_CONTINUATION_H

#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "text/token_list.h"
#include "trainer/generate/decoder.h"
#include "trainer/generate/token_choice.h"

/* The token that a text without a prompt goes on from: what stands after the end of a text, or of a
 * line. */
int32_t continuation_first(const struct gpt2_config *config);

/* Takes the next token as it is drawn; -1 with err set ends the text. */
typedef int continuation_sink(void *arg, int32_t token, struct err *err);

/* Appends up to `count` tokens to the list, which has at least one; fewer where the text ends. Text
 * number `sequence` of a seed has random numbers of its own. EXIT_DATA where no logit is a
 * number. */
int continuation_write(struct decoder *decoder, const struct token_choice *choice,
	uint32_t sequence, struct token_list *tokens, size_t count, continuation_sink *sink, void *arg,
	struct err *err);

#endif
