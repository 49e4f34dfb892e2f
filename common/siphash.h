/* SPDX-License-Identifier: Apache-2.0 */
/* SipHash-2-4 (Aumasson and Bernstein, 2012): who does not know the key can't make the tag of a
 * short message. */
#ifndef MUSTER_SIPHASH_H
#define MUSTER_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t siphash(const unsigned char key[16], const void *data, size_t size);

#endif
