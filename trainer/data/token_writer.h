/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a token file as a stream under a temporary name; it gets its own name only when it is
 * whole and durable. A name that ends in ".u16" gets raw uint16 tokens, any other name llm.c's
 * header first. */
#ifndef MUSTER_TOKEN_WRITER_H
#define MUSTER_TOKEN_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

struct token_writer;

/* The file's tokens have 16 bits, or 32 where `vocabulary` needs them. Without `replace`, an
 * existing `path` is refused (EXIT_USAGE), and so are raw tokens that need more than 16 bits. NULL
 * on error.
 */
struct token_writer *token_writer_create(const char *path, int32_t vocabulary, bool replace,
	struct err *err);

/* Appends one token for each byte. */
int token_writer_add(struct token_writer *writer, const unsigned char *bytes, size_t count,
	struct err *err);

/* Appends tokens of the vocabulary. */
int token_writer_add_ids(struct token_writer *writer, const int32_t *ids, size_t count,
	struct err *err);

/* The tokens so far, and the most that the file's layout can count. */
uint64_t token_writer_tokens(const struct token_writer *writer);
uint64_t token_writer_most(const struct token_writer *writer);

/* Moves the last `count` tokens of `from` to the end of `to`. */
int token_writer_move_tail(struct token_writer *from, struct token_writer *to, uint64_t count,
	struct err *err);

/* Whether both writers would make the same file. */
bool token_writer_same(const struct token_writer *a, const struct token_writer *b);

/* Writes the header, makes the file durable and gives it its name. The writer must still be
 * destroyed. */
int token_writer_commit(struct token_writer *writer, struct err *err);

/* Frees the writer; removes the temporary file unless it was committed. `writer` may be NULL. */
void token_writer_destroy(struct token_writer *writer);

#endif
