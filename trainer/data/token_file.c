/* SPDX-License-Identifier: Apache-2.0 */
/* Tells the layouts of token files apart, without trusting any byte of them. */
#include "trainer/data/token_file.h"

#include <string.h>

#include "common/bytes.h"

static bool ends_in(const char *name, const char *ending)
{
	size_t n = strlen(name), e = strlen(ending);
	return n >= e && strcmp(name + n - e, ending) == 0;
}

bool token_file_is_raw(const char *name)
{
	return ends_in(name, ".u16");
}

/* Only a header has 253 words of zero after a first word that is not zero. */
static bool looks_like_header(const unsigned char *bytes, size_t size)
{
	if (size < TOKEN_FILE_HEADER || bytes_le32(bytes) == 0)
		return false;
	for (size_t i = 3 * 4; i < TOKEN_FILE_HEADER; i++)
		if (bytes[i])
			return false;
	return true;
}

static int parse_raw(size_t size, const char *name, struct token_file *file, struct err *err)
{
	if (size % 2)
		return err_fail(err, EXIT_DATA,
			"data: couldn't read %s: %zu bytes are no whole number of uint16 tokens", name, size);
	*file = (struct token_file) { .offset = 0, .tokens = size / 2, .width = 2 };
	return 0;
}

static int parse_counted(const unsigned char *bytes, size_t size, const char *name,
	struct token_file *file, struct err *err)
{
	if (size < TOKEN_FILE_HEADER)
		return err_fail(err, EXIT_DATA,
			"data: couldn't read %s: truncated in its header, at %zu of %d bytes", name, size,
			TOKEN_FILE_HEADER);
	const bool wide = bytes_le32(bytes) == TOKEN_FILE_WIDE_MAGIC;
	const int known = wide ? TOKEN_FILE_WIDE_VERSION : TOKEN_FILE_VERSION, width = wide ? 4 : 2;
	int32_t version = (int32_t)bytes_le32(bytes + 4), count = (int32_t)bytes_le32(bytes + 8);
	if (version != known)
		return err_fail(err, EXIT_DATA,
			"data: couldn't read %s: version %d of the token file format; version %d is known",
			name, version, known);
	if (count < 0)
		return err_fail(err, EXIT_DATA, "data: couldn't read %s: its header says %d tokens", name,
			count);
	uint64_t expected = TOKEN_FILE_HEADER + (uint64_t)width * (uint64_t)count;
	if (size != expected)
		return err_fail(err, EXIT_DATA,
			"data: couldn't read %s: %s: its header says %d tokens, so %llu bytes; it has %zu",
			name, size < expected ? "truncated" : "longer than it should be", count,
			(unsigned long long)expected, size);
	*file = (struct token_file) { .offset = TOKEN_FILE_HEADER,
		.tokens = (uint64_t)count,
		.width = width };
	return 0;
}

int token_file_parse(const unsigned char *bytes, size_t size, const char *name,
	struct token_file *file, struct err *err)
{
	if (token_file_is_raw(name))
		return parse_raw(size, name, file, err);
	uint32_t magic = size >= 4 ? bytes_le32(bytes) : 0;
	if (magic == TOKEN_FILE_MAGIC || magic == TOKEN_FILE_WIDE_MAGIC)
		return parse_counted(bytes, size, name, file, err);
	if (looks_like_header(bytes, size) || !ends_in(name, ".bin"))
		return err_fail(err, EXIT_DATA,
			"data: couldn't read %s: wrong magic %u, a token file begins with %d (raw uint16 "
			"tokens belong in a file whose name ends in .u16)",
			name, magic, TOKEN_FILE_MAGIC);
	return parse_raw(size, name, file, err);
}

void token_file_header(unsigned char out[TOKEN_FILE_HEADER], int32_t tokens, int width)
{
	memset(out, 0, TOKEN_FILE_HEADER);
	bytes_put_le32(out, width == 4 ? TOKEN_FILE_WIDE_MAGIC : TOKEN_FILE_MAGIC);
	bytes_put_le32(out + 4, width == 4 ? TOKEN_FILE_WIDE_VERSION : TOKEN_FILE_VERSION);
	bytes_put_le32(out + 8, (uint32_t)tokens);
}
