/* SPDX-License-Identifier: Apache-2.0 */
/* A GPT-2 that continues a text on the CPU: it keeps the keys and values of all positions, so that
 * a further token costs one read of the weights.
 *
 * The logits of a token have the same bits whatever the number of threads and the instruction set,
 * and however many tokens were fed at once. They are not those of a training step, whose sums run
 * in another order, but agree with them within the rounding of fp32. */
#ifndef MUSTER_DECODER_H
#define MUSTER_DECODER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "checkpoint/convert/model_source.h"
#include "common/err.h"

struct decoder; /* used by one thread at a time; it computes with OpenMP's threads */

/* Reads the weights, which are kept as fp32, or rounded to bfloat16 where `half` is set. NULL on
 * error; freed by decoder_close. The source can be closed afterwards. */
struct decoder *decoder_open(struct model_source *source, bool half, struct err *err);

/* `decoder` may be NULL. */
void decoder_close(struct decoder *decoder);

const struct gpt2_config *decoder_config(const struct decoder *decoder);

/* Bytes of weights that each token reads, and of the keys and values that are kept at most. */
uint64_t decoder_weight_bytes(const struct decoder *decoder);
uint64_t decoder_cache_bytes(const struct decoder *decoder);

/* Number of tokens fed so far; at most the model's context. */
size_t decoder_length(const struct decoder *decoder);

/* Forgets all tokens but the first `length`. */
void decoder_rewind(struct decoder *decoder, size_t length);

/* Appends tokens, at least one. logits [vocabulary] become those of what follows the last one; it
 * may be NULL. -1 with EXIT_DATA for a token that is not in the vocabulary, and when the context is
 * full; then nothing was appended. */
int decoder_feed(struct decoder *decoder, const int32_t *tokens, size_t count, float *logits,
	struct err *err);

#endif
