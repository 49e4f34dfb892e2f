/* SPDX-License-Identifier: Apache-2.0 */
/* A block's shared memory: filled with NaN when a block begins, each array apart from the next for
 * the address sanitizer. */
#ifndef MUSTER_SHIM_SHARED_H
#define MUSTER_SHIM_SHARED_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SHARED_STATIC_MOST ((size_t)48 << 10) /* bytes that a kernel can declare */
#define SHARED_MOST ((size_t)227 << 10)       /* with the dynamic ones, on sm_90 */

/* One declaration of a kernel: zero before its first use. */
struct shared_site {
	unsigned int launch;
	size_t offset;
};

/* The array of a declaration, the same for all threads of a block. */
void *shared_static(struct shared_site *site, size_t bytes);
void *shared_dynamic(void);

/* Whether `bytes` at p are a block's shared memory. */
bool shared_holds(const void *p, size_t bytes);

/* A launch with that many dynamic bytes; then each of its blocks. Returns -1 when out of memory. */
int shared_launch(size_t dynamic_bytes);
void shared_block(void);

#ifdef __cplusplus
}
#endif

#endif
