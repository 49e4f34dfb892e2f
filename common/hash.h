/* SPDX-License-Identifier: Apache-2.0 */
/* XXH3-128 (https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md), which detects damage
 * in all data that is kept. */
#ifndef MUSTER_HASH_H
#define MUSTER_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hash128 {
	uint64_t low, high;
};

#define HASH_HEX_SIZE \
	33 /* 32 digits, high half first (xxHash's canonical order), and the final NUL */

struct hash128 hash_bytes(const void *data, size_t size);
bool hash_equal(struct hash128 a, struct hash128 b);

/* Writes the 32 lower-case digits into `out` and returns it. */
char *hash_hex(struct hash128 hash, char out[HASH_HEX_SIZE]);

/* Parses exactly 32 lower-case digits; -1 for anything else. */
int hash_parse(const char *text, struct hash128 *hash);

/* The hash of bytes that arrive in pieces. */
struct hasher;
struct hasher *hasher_create(void); /* NULL when out of memory; freed by hasher_destroy */
void hasher_add(struct hasher *hasher, const void *data, size_t size);
struct hash128 hasher_value(const struct hasher *hasher);
void hasher_reset(struct hasher *hasher);
void hasher_destroy(struct hasher *hasher);

#endif
