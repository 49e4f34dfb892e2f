/* SPDX-License-Identifier: Apache-2.0 */
/* SipHash-2-4 (Aumasson and Bernstein, 2012): authenticates short messages; without the key nobody
 * can compute a message's tag. */
#ifndef MUSTER_SIPHASH_H
#define MUSTER_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t siphash(const unsigned char key[16], const void *data, size_t size);

#endif
