/* SPDX-License-Identifier: Apache-2.0 */
/* The choice of the next token from its logits, as a pure function. */
#ifndef MUSTER_TOKEN_CHOICE_H
#define MUSTER_TOKEN_CHOICE_H

#include <stddef.h>
#include <stdint.h>

struct token_choice {
	double temperature; /* logits are divided by it; 0: the most probable token */
	size_t top_k;       /* only these many most probable tokens are drawn from; 0: all */
	double top_p;       /* only the fewest most probable ones that reach this probability together,
						   at least one; 1: all */
	uint64_t seed;
};

/* Draws a token with the random number of (seed, sequence, position). Of equal logits the lower
 * token comes first. `order` is room for `vocabulary` tokens. A logit that is not a number is never
 * drawn; -1 when there is no other. */
int32_t token_choose(const struct token_choice *choice, const float *logits, size_t vocabulary,
	uint32_t sequence, uint64_t position, int32_t *order);

#endif
