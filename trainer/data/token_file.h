/* SPDX-License-Identifier: Apache-2.0 */
/* Files of tokens: llm.c's .bin (https://github.com/karpathy/llm.c, dev/data/data_common.py:
 * write_datafile) and raw files as nanoGPT writes them.
 *
 * llm.c's have a header of 256 little-endian int32 — magic 20240520, version 1, the number of
 * tokens, zeros — and then the tokens as little-endian uint16, and nothing after them. Where magic
 * and version are 20240801 and 7, they are uint32. */
#ifndef MUSTER_TOKEN_FILE_H
#define MUSTER_TOKEN_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

#define TOKEN_FILE_HEADER 1024 /* bytes */
#define TOKEN_FILE_MAGIC 20240520
#define TOKEN_FILE_VERSION 1
#define TOKEN_FILE_WIDE_MAGIC 20240801
#define TOKEN_FILE_WIDE_VERSION 7
#define TOKEN_FILE_MOST INT32_MAX /* the most tokens that the header can count */

struct token_file {
	size_t offset; /* of the first token, in bytes */
	uint64_t tokens;
	int width; /* bytes of a token: 2 or 4 */
};

/* Whether a file of this name is raw tokens, whatever its first bytes. */
bool token_file_is_raw(const char *name);

/* Tells the layout of a whole file of `size` bytes, and reads only the first TOKEN_FILE_HEADER of
 * these. By `name`, ".u16" is always raw, and ".bin" is raw without the magic; other names must
 * have the magic. A file without the magic but with words 3 to 255 zero, as only a header has, is
 * refused rather than read as tokens. Status EXIT_DATA. */
int token_file_parse(const unsigned char *bytes, size_t size, const char *name,
	struct token_file *file, struct err *err);

/* Writes the header of a file with `tokens` tokens of `width` bytes. */
void token_file_header(unsigned char out[TOKEN_FILE_HEADER], int32_t tokens, int width);

#endif
