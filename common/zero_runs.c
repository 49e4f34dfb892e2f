/* SPDX-License-Identifier: Apache-2.0 */
#include "common/zero_runs.h"

#include <stdbool.h>
#include <string.h>

#define COUNT_MAX 255

/* A lone zero among others costs less as one of them than as a run. */
static bool ends_others(const unsigned char *bytes, size_t left)
{
	return bytes[0] == 0 && left > 1 && bytes[1] == 0;
}

size_t zero_runs_bound(size_t size)
{
	return 2 * size + 2;
}

size_t zero_runs_pack(const unsigned char *bytes, size_t size, unsigned char *out)
{
	size_t used = 0;
	for (size_t at = 0; at < size;) {
		size_t zeros = 0, others = 0;
		while (zeros < COUNT_MAX && at + zeros < size && bytes[at + zeros] == 0)
			zeros++;
		at += zeros;
		while (others < COUNT_MAX && at + others < size && !ends_others(bytes + at + others, size - at - others))
			others++;
		out[used++] = (unsigned char)zeros;
		out[used++] = (unsigned char)others;
		memcpy(out + used, bytes + at, others);
		used += others;
		at += others;
	}
	return used;
}

long zero_runs_size(const unsigned char *packed, size_t size)
{
	long total = 0;
	for (size_t at = 0; at < size; at += 2 + (size_t)packed[at + 1]) {
		if (size - at < 2 || size - at - 2 < packed[at + 1])
			return -1;
		total += packed[at] + packed[at + 1];
	}
	return total;
}

void zero_runs_unpack(const unsigned char *packed, size_t size, unsigned char *out)
{
	for (size_t at = 0; at < size; at += 2 + (size_t)packed[at + 1]) {
		memset(out, 0, packed[at]);
		memcpy(out + packed[at], packed + at + 2, packed[at + 1]);
		out += packed[at] + packed[at + 1];
	}
}
