/* SPDX-License-Identifier: Apache-2.0 */
/* A byte-level BPE tokenizer from a tokenizer.json of Hugging Face's, such as those of GPT-2, Llama
 * 3 and Qwen2 (https://huggingface.co/docs/tokenizers): added tokens, NFC, a regular expression,
 * and merges. What else such a file can ask for is refused by its name. */
#ifndef MUSTER_TOKENIZER_H
#define MUSTER_TOKENIZER_H

#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "text/token_list.h"

struct tokenizer; /* any number of threads may use it at once */

/* Reads the file, or the tokenizer.json in the directory `path`. NULL on error: EXIT_DATA names
 * what can't be used. */
struct tokenizer *tokenizer_open(const char *path, struct err *err);

/* The same from the file's bytes; messages call it `name`. */
struct tokenizer *tokenizer_parse(const char *text, size_t size, const char *name, struct err *err);

/* `tokenizer` may be NULL. */
void tokenizer_close(struct tokenizer *tokenizer);

/* One more than the largest id. */
int32_t tokenizer_vocabulary(const struct tokenizer *tokenizer);

/* The token of exactly this text, such as "<|endoftext|>"; -1: none. */
int32_t tokenizer_find(const struct tokenizer *tokenizer, const char *text);

/* The bytes that a token stands for, not necessarily whole characters; NULL: there is no such
 * token. */
const char *tokenizer_bytes(const struct tokenizer *tokenizer, int32_t id, size_t *size);

/* What one thread needs to encode. */
struct tokenizer_work;
struct tokenizer_work *tokenizer_work_create(
	const struct tokenizer *tokenizer); /* NULL: no memory */
void tokenizer_work_destroy(struct tokenizer_work *work);

/* Appends the tokens of a text, which are those of tokenizers' encode(add_special_tokens=False).
 * EXIT_DATA names the first byte that is not UTF-8, counted from `offset`; then nothing was
 * appended. */
int tokenizer_encode(const struct tokenizer *tokenizer, struct tokenizer_work *work,
	const char *text, size_t size, uint64_t offset, struct token_list *list, struct err *err);

/* The largest offset up to which a text can be encoded for itself, so that all of it would have the
 * same tokens; 0: none is known. It lies between a line and one that begins with a letter. */
size_t tokenizer_cut(const struct tokenizer *tokenizer, const char *text, size_t size);

#endif
