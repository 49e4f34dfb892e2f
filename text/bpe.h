/* SPDX-License-Identifier: Apache-2.0 */
/* Byte-level byte pair encoding (Sennrich, Haddow and Birch, "Neural machine translation of rare
 * words with subword units", ACL 2016; over bytes as in GPT-2): a piece of text begins as its
 * bytes, and the pair that was merged first when the vocabulary was made is merged first, the
 * leftmost of equal ones, until no pair is left. */
#ifndef MUSTER_BPE_H
#define MUSTER_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

struct bpe;

/* Makes an empty one; `whole` takes a piece that is a token itself without looking at the merges.
 * NULL when out of memory. */
struct bpe *bpe_create(bool whole);
void bpe_destroy(struct bpe *bpe);

/* Adds a token; EXIT_DATA where there is another of its bytes or its id. */
int bpe_add_token(struct bpe *bpe, int32_t id, const void *bytes, size_t size, struct err *err);

/* Adds the next merge, of two tokens into one whose bytes are theirs; all three must be there. */
int bpe_add_merge(struct bpe *bpe, int32_t left, int32_t right, struct err *err);

/* EXIT_DATA unless each byte is a token. To be called after all tokens were added. */
int bpe_check(struct bpe *bpe, struct err *err);

/* The id of a token; -1: none. */
int32_t bpe_find(const struct bpe *bpe, const void *bytes, size_t size);

/* The bytes of a token; NULL: none. */
const char *bpe_bytes(const struct bpe *bpe, int32_t id, size_t *size);

/* One more than the largest id. */
int32_t bpe_count(const struct bpe *bpe);

/* Room for the encoding of a piece; used by one thread at a time. */
struct bpe_work;
struct bpe_work *bpe_work_create(void);
void bpe_work_destroy(struct bpe_work *work);

/* Encodes a piece of at least one byte. *ids points into `work` until its next use. Returns their
 * number, 0 when out of memory. */
size_t bpe_encode(const struct bpe *bpe, struct bpe_work *work, const unsigned char *piece,
	size_t size, const int32_t **ids);

#endif
