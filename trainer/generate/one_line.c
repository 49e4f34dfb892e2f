/* SPDX-License-Identifier: Apache-2.0 */
/* The Unicode Standard, table 3-7, says which bytes are UTF-8. */
#include "config.h"

#include "trainer/generate/one_line.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of the character at `p`; 0: it is not UTF-8. */
static size_t length_of(const unsigned char *p, size_t left)
{
	const size_t length = *p < 0x80 ? 1
		: *p >= 0xc2 && *p < 0xe0   ? 2
		: *p >= 0xe0 && *p < 0xf0   ? 3
		: *p >= 0xf0 && *p < 0xf5   ? 4
									: 0;
	if (length < 2 || length > left)
		return length > left ? 0 : length;
	for (size_t i = 1; i < length; i++)
		if (p[i] < 0x80 || p[i] > 0xbf)
			return 0;
	const bool overlong = (*p == 0xe0 && p[1] < 0xa0) || (*p == 0xf0 && p[1] < 0x90);
	const bool surrogate = *p == 0xed && p[1] > 0x9f, beyond = *p == 0xf4 && p[1] > 0x8f;
	return overlong || surrogate || beyond ? 0 : length;
}

/* U+0080 to U+009F are control characters, too, and U+2028 and U+2029 end lines. */
static bool is_control(const unsigned char *p, size_t length)
{
	return (length == 1 && (*p < 0x20 || *p == 0x7f)) || (length == 2 && *p == 0xc2 && p[1] < 0xa0)
		|| (length == 3 && memcmp(p, "\xe2\x80", 2) == 0 && (p[2] == 0xa8 || p[2] == 0xa9));
}

static void escape(unsigned char byte, FILE *out)
{
	static const char plain[] = "\n\t\r\\", letters[] = "ntr\\";
	const char *found = byte ? strchr(plain, byte) : NULL;
	if (found)
		fprintf(out, "\\%c", letters[found - plain]);
	else
		fprintf(out, "\\x%02x", byte);
}

char *one_line(const char *bytes, size_t size)
{
	const unsigned char *p = (const unsigned char *)bytes;
	char *text = NULL;
	size_t text_size;
	FILE *out = open_memstream(&text, &text_size);
	if (!out)
		return NULL;
	for (size_t at = 0, length; at < size; at += length ? length : 1) {
		length = length_of(p + at, size - at);
		if (length && !is_control(p + at, length) && p[at] != '\\')
			fwrite(p + at, 1, length, out);
		else
			for (size_t i = 0; i < (length ? length : 1); i++)
				escape(p[at + i], out);
	}
	if (fclose(out) == 0)
		return text;
	free(text);
	return NULL;
}
