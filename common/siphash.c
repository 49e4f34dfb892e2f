/* SPDX-License-Identifier: Apache-2.0 */
/* SipHash-2-4, as in section 2 of its paper. */
#include "common/siphash.h"

#include "common/bytes.h"

static uint64_t rotate(uint64_t v, int bits)
{
	return v << bits | v >> (64 - bits);
}

static void rounds(uint64_t v[4], int count)
{
	while (count-- > 0) {
		v[0] += v[1];
		v[2] += v[3];
		v[1] = rotate(v[1], 13) ^ v[0];
		v[3] = rotate(v[3], 16) ^ v[2];
		v[0] = rotate(v[0], 32);
		v[2] += v[1];
		v[0] += v[3];
		v[1] = rotate(v[1], 17) ^ v[2];
		v[3] = rotate(v[3], 21) ^ v[0];
		v[2] = rotate(v[2], 32);
	}
}

static void absorb(uint64_t v[4], uint64_t word)
{
	v[3] ^= word;
	rounds(v, 2);
	v[0] ^= word;
}

uint64_t siphash(const unsigned char key[16], const void *data, size_t size)
{
	const uint64_t low = bytes_le64(key), high = bytes_le64(key + 8);
	uint64_t v[4] = { low ^ UINT64_C(0x736f6d6570736575), high ^ UINT64_C(0x646f72616e646f6d),
		low ^ UINT64_C(0x6c7967656e657261), high ^ UINT64_C(0x7465646279746573) };
	unsigned char last[8] = { 0 };
	const unsigned char *at = data;
	size_t whole = size / 8 * 8;
	for (size_t i = 0; i < whole; i += 8)
		absorb(v, bytes_le64(at + i));
	for (size_t i = whole; i < size; i++)
		last[i - whole] = at[i];
	last[7] = (unsigned char)size;
	absorb(v, bytes_le64(last));
	v[2] ^= 0xff;
	rounds(v, 4);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}
