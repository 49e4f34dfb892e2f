/* SPDX-License-Identifier: Apache-2.0 */
/* Computes the order of samples place by place, so that no list is stored. */
#include "order/sampler.h"

#include "order/philox.h"

/* Four rounds make a Feistel network a pseudo-random permutation (Luby and Rackoff, 1988). Eight
 * also mix domains of few bits, where each round has few values to choose from. */
#define ROUNDS 8

/* Half the width, in bits, of the smallest domain 2^(2·half) that contains [0, count): 1 to 32. */
static unsigned int half_bits(uint64_t count)
{
	unsigned int half = 1;
	while (half < 32 && (count - 1) >> (2 * half))
		half++;
	return half;
}

/* The counter is (right half, epoch, the epoch's upper bits and the round, use): distinct for every
 * epoch below 2^56. */
static uint32_t round_value(uint64_t seed, uint64_t epoch, uint32_t round, uint32_t right)
{
	const uint32_t counter[4] = { right, (uint32_t)epoch, (uint32_t)(epoch >> 32) << 8 | round,
		PHILOX_SAMPLER };
	const uint32_t key[2] = { (uint32_t)seed, (uint32_t)(seed >> 32) };
	uint32_t out[4];
	philox(counter, key, out);
	return out[0];
}

static uint64_t feistel(uint64_t seed, uint64_t epoch, unsigned int half, uint64_t value)
{
	uint32_t mask = (uint32_t)((UINT64_C(1) << half) - 1);
	uint32_t left = (uint32_t)(value >> half) & mask;
	uint32_t right = (uint32_t)value & mask;
	for (uint32_t round = 0; round < ROUNDS; round++) {
		uint32_t next = left ^ (round_value(seed, epoch, round, right) & mask);
		left = right;
		right = next;
	}
	return (uint64_t)left << half | right;
}

/* Cycle walking: applies the larger domain's permutation until the value is in [0, count). For two
 * samples or more the domain is less than four times as large, so fewer than four steps are
 * expected. */
uint64_t sampler_permute(uint64_t seed, uint64_t epoch, uint64_t count, uint64_t index)
{
	unsigned int half = half_bits(count);
	uint64_t value = index;
	do
		value = feistel(seed, epoch, half, value);
	while (value >= count);
	return value;
}

uint64_t sampler_epoch_steps(const struct sampler *sampler)
{
	uint64_t whole = sampler->count / sampler->global_batch;
	bool partial = sampler->count % sampler->global_batch != 0;
	return whole + (sampler->complete && partial);
}

uint64_t sampler_at(const struct sampler *sampler, uint64_t step, uint64_t place)
{
	uint64_t steps = sampler_epoch_steps(sampler);
	if (steps == 0)
		return SAMPLER_NONE;
	uint64_t epoch = step / steps;
	uint64_t first = step % steps * sampler->global_batch;
	if (place >= sampler->count - first)
		return SAMPLER_NONE;
	uint64_t index = first + place;
	return sampler->shuffle ? sampler_permute(sampler->seed, epoch, sampler->count, index) : index;
}
