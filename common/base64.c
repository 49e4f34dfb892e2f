/* SPDX-License-Identifier: Apache-2.0 */
/* A strict decoder: it accepts only what base64_encode writes, without line breaks, so bytes have
 * exactly one text. */
#include "common/base64.h"

#include <stdint.h>
#include <string.h>

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void base64_encode(const void *data, size_t size, char *out)
{
	const unsigned char *bytes = data;
	for (size_t i = 0; i < size; i += 3) {
		size_t here = size - i < 3 ? size - i : 3;
		uint32_t group = (uint32_t)bytes[i] << 16;
		group |= here > 1 ? (uint32_t)bytes[i + 1] << 8 : 0;
		group |= here > 2 ? bytes[i + 2] : 0;
		for (size_t k = 0; k < 4; k++)
			*out++ = k > here ? '=' : digits[group >> (18 - 6 * k) & 63];
	}
	*out = '\0';
}

/* The value of a digit; -1 if it is none. */
static int value_of(char c)
{
	const char *place = c ? strchr(digits, c) : NULL;
	return place ? (int)(place - digits) : -1;
}

/* Decodes four characters to up to three bytes. Returns their number, -1 when malformed. Only the
 * `last` group may have padding. */
static int decode_group(const char *text, int last, unsigned char out[3])
{
	int here = !last || text[3] != '=' ? 3 : text[2] != '=' ? 2 : 1;
	uint32_t group = 0;
	for (int k = 0; k <= here; k++) {
		int value = value_of(text[k]);
		if (value < 0)
			return -1;
		group |= (uint32_t)value << (18 - 6 * k);
	}
	for (int k = 0; k < 3; k++)
		out[k] = (unsigned char)(group >> (16 - 8 * k));
	for (int k = here; k < 3; k++)
		if (out[k])
			return -1;
	return here;
}

long base64_decode(const char *text, size_t length, void *out, size_t room)
{
	unsigned char group[3], *to = out;
	size_t size = 0;
	if (length % 4)
		return -1;
	for (size_t i = 0; i < length; i += 4) {
		int n = decode_group(text + i, i + 4 == length, group);
		if (n < 0 || (size_t)n > room - size)
			return -1;
		memcpy(to + size, group, (size_t)n);
		size += (size_t)n;
	}
	return (long)size;
}
