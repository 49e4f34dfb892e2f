/* SPDX-License-Identifier: Apache-2.0 */
/* XXH3-128 compiled into this program from libxxhash's header, which uses the widest vectors that
 * the compiler may use in the including file. The shared library is built for any x86-64 and runs
 * at half the rate. A state is used only by code from this header. */
#ifndef MUSTER_HASH_XXH3_H
#define MUSTER_HASH_XXH3_H

#include <stddef.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* One implementation; all give the same results. */
struct hash_xxh3 {
	XXH128_hash_t (*bytes)(const void *data, size_t size);
	void (*add)(XXH3_state_t *state, const void *data, size_t size);
};

extern const struct hash_xxh3 hash_plain;
extern const struct hash_xxh3 hash_avx2; /* needs AVX2; NULL members: not built */

/* The fastest one that this CPU can run. */
const struct hash_xxh3 *hash_xxh3_choose(void);

#endif
