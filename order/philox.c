/* SPDX-License-Identifier: Apache-2.0 */
/* Philox 4x32-10, the source of all random numbers in a training. */
#include "order/philox.h"

#include <string.h>

#define ROUNDS 10

/* The multipliers and the Weyl increments of the key (golden ratio, sqrt(3) - 1) from the paper's
 * table 2 and section 4. */
static const uint32_t multiplier[2] = { 0xD2511F53, 0xCD9E8D57 };
static const uint32_t weyl[2] = { 0x9E3779B9, 0xBB67AE85 };

void philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
	uint32_t c[4];
	uint32_t k[2] = { key[0], key[1] };
	memcpy(c, counter, sizeof c);
	for (int round = 0; round < ROUNDS; round++) {
		uint64_t p0 = (uint64_t)multiplier[0] * c[0];
		uint64_t p1 = (uint64_t)multiplier[1] * c[2];
		c[0] = (uint32_t)(p1 >> 32) ^ c[1] ^ k[0];
		c[1] = (uint32_t)p1;
		c[2] = (uint32_t)(p0 >> 32) ^ c[3] ^ k[1];
		c[3] = (uint32_t)p0;
		k[0] += weyl[0];
		k[1] += weyl[1];
	}
	memcpy(out, c, sizeof c);
}
