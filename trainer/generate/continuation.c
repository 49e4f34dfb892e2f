/* SPDX-License-Identifier: Apache-2.0 */
/* Where the decoder's context is full, the older half of it is forgotten. */
#include "trainer/generate/continuation.h"

#include <stdlib.h>

#include "common/auto.h"

int32_t continuation_first(const struct gpt2_config *config)
{
	return config->begin >= 0 ? (int32_t)config->begin : config->vocabulary > '\n' ? '\n' : 0;
}

/* Feeds the last ones of all tokens that fit. */
static int feed(struct decoder *decoder, const struct token_list *all, size_t fed, float *logits,
	struct err *err)
{
	const size_t context = (size_t)decoder_config(decoder)->context;
	size_t from = fed;
	if (all->count - fed > context - decoder_length(decoder)) {
		decoder_rewind(decoder, 0);
		from = all->count - (context + 1) / 2;
	}
	return decoder_feed(decoder, all->ids + from, all->count - from, logits, err);
}

int continuation_write(struct decoder *decoder, const struct token_choice *choice,
	uint32_t sequence, struct token_list *tokens, size_t count, continuation_sink *sink, void *arg,
	struct err *err)
{
	const size_t vocabulary = (size_t)decoder_config(decoder)->vocabulary;
	AUTO_FREE float *logits = malloc(vocabulary * sizeof *logits);
	AUTO_FREE int32_t *order = malloc(vocabulary * sizeof *order);
	const size_t prompt = tokens->count;
	size_t fed = 0;
	if (!logits || !order)
		return err_set(err, "out of memory");
	decoder_rewind(decoder, 0);
	while (tokens->count < prompt + count) {
		if (feed(decoder, tokens, fed, logits, err) < 0)
			return -1;
		fed = tokens->count;
		const int32_t token =
			token_choose(choice, logits, vocabulary, sequence, tokens->count, order);
		if (token < 0)
			return err_fail(err, EXIT_DATA, "the model's logits are not numbers");
		if (token == decoder_config(decoder)->end)
			break;
		if (sink(arg, token, err) < 0 || token_list_append(tokens, &token, 1, err) < 0)
			return -1;
	}
	return 0;
}
