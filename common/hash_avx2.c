/* SPDX-License-Identifier: Apache-2.0 */
/* The same code as in hash.c, compiled for AVX2. */
#if defined __x86_64__ && !defined __clang__
#pragma GCC target("avx2")
#endif
#include "common/hash_xxh3.h"

#ifdef __AVX2__
static XXH128_hash_t bytes(const void *data, size_t size)
{
	return XXH3_128bits(data, size);
}

static void add(XXH3_state_t *state, const void *data, size_t size)
{
	XXH3_128bits_update(state, data, size);
}

const struct hash_xxh3 hash_avx2 = { bytes, add };
#else
const struct hash_xxh3 hash_avx2;
#endif
