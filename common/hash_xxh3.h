/* SPDX-License-Identifier: Apache-2.0 */
/* XXH3-128 out of libxxhash's header, which takes the widest vectors that the compiler may use in
 * the file that includes it: the library itself is built for any x86-64 and takes half the rate.
 * All that touches a state is from the same header. */
#ifndef MUSTER_HASH_XXH3_H
#define MUSTER_HASH_XXH3_H

#include <stddef.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* One way to compute it; the results are the same. */
struct hash_xxh3 {
	XXH128_hash_t (*bytes)(const void *data, size_t size);
	void (*add)(XXH3_state_t *state, const void *data, size_t size);
};

extern const struct hash_xxh3 hash_plain;
extern const struct hash_xxh3 hash_avx2; /* NULL in it: not built. Only where the CPU has AVX2 */

/* The faster one of those that work here. */
const struct hash_xxh3 *hash_xxh3_choose(void);

#endif
