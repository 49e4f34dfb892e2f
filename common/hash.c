/* SPDX-License-Identifier: Apache-2.0 */
/* XXH3-128 from libxxhash, with AVX2 where the CPU has it. */
#include "common/hash.h"

#include <stdio.h>
#include <string.h>

#include "common/hash_xxh3.h"

static XXH128_hash_t plain_bytes(const void *data, size_t size)
{
	return XXH3_128bits(data, size);
}

static void plain_add(XXH3_state_t *state, const void *data, size_t size)
{
	XXH3_128bits_update(state, data, size);
}

const struct hash_xxh3 hash_plain = { plain_bytes, plain_add };

const struct hash_xxh3 *hash_xxh3_choose(void)
{
#ifdef __x86_64__
	if (hash_avx2.add && __builtin_cpu_supports("avx2"))
		return &hash_avx2;
#endif
	return &hash_plain;
}

static struct hash128 from_xxh(XXH128_hash_t h)
{
	return (struct hash128) { .low = h.low64, .high = h.high64 };
}

struct hash128 hash_bytes(const void *data, size_t size)
{
	return from_xxh(hash_xxh3_choose()->bytes(data, size));
}

bool hash_equal(struct hash128 a, struct hash128 b)
{
	return a.low == b.low && a.high == b.high;
}

char *hash_hex(struct hash128 hash, char out[HASH_HEX_SIZE])
{
	snprintf(out, HASH_HEX_SIZE, "%016llx%016llx", (unsigned long long)hash.high,
		(unsigned long long)hash.low);
	return out;
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return -1;
}

int hash_parse(const char *text, struct hash128 *hash)
{
	uint64_t half[2] = { 0, 0 };
	if (strlen(text) != HASH_HEX_SIZE - 1)
		return -1;
	for (int i = 0; i < HASH_HEX_SIZE - 1; i++) {
		int digit = hex_digit(text[i]);
		if (digit < 0)
			return -1;
		half[i / 16] = half[i / 16] << 4 | (uint64_t)digit;
	}
	*hash = (struct hash128) { .high = half[0], .low = half[1] };
	return 0;
}

struct hasher *hasher_create(void)
{
	XXH3_state_t *state = XXH3_createState();
	if (state)
		XXH3_128bits_reset(state);
	return (struct hasher *)state;
}

void hasher_add(struct hasher *hasher, const void *data, size_t size)
{
	hash_xxh3_choose()->add((XXH3_state_t *)hasher, data, size);
}

struct hash128 hasher_value(const struct hasher *hasher)
{
	return from_xxh(XXH3_128bits_digest((const XXH3_state_t *)hasher));
}

void hasher_reset(struct hasher *hasher)
{
	XXH3_128bits_reset((XXH3_state_t *)hasher);
}

void hasher_destroy(struct hasher *hasher)
{
	if (hasher)
		XXH3_freeState((XXH3_state_t *)hasher);
}
