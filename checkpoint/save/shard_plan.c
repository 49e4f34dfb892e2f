/* SPDX-License-Identifier: Apache-2.0 */
/* Assigns items to writers and to shards by integer arithmetic alone, so that every node gets the
 * same plan. */
#include "checkpoint/save/shard_plan.h"

#include <stdbool.h>

/* The number of runs of at most `limit` bytes that the list needs; `count` + 1 when a single item
 * is larger. */
static size_t runs_needed(const uint64_t *bytes, size_t count, uint64_t limit)
{
	size_t runs = count > 0;
	uint64_t left = limit;
	for (size_t i = 0; i < count; i++) {
		if (bytes[i] > limit)
			return count + 1;
		if (bytes[i] > left) {
			left = limit;
			runs++;
		}
		left -= bytes[i];
	}
	return runs;
}

/* The smallest limit for which the list needs no more runs than there are writers. */
static uint64_t least_limit(const uint64_t *bytes, size_t count, int writers)
{
	uint64_t low = 0, high = 0;
	for (size_t i = 0; i < count; i++)
		if (__builtin_add_overflow(high, bytes[i], &high))
			high = UINT64_MAX;
	while (low < high) {
		uint64_t middle = low + (high - low) / 2;
		if (runs_needed(bytes, count, middle) <= (size_t)writers)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

void shard_plan_assign(const uint64_t *bytes, size_t count, int writers, int *writer)
{
	uint64_t limit = least_limit(bytes, count, writers), left = limit;
	int at = 0;
	for (size_t i = 0; i < count; i++) {
		/* No writer may lack items while another has several, so the last writers get one item
		 * each. */
		bool spread = i > 0 && count - i < (size_t)(writers - at);
		if (i > 0 && at + 1 < writers && (bytes[i] > left || spread)) {
			at++;
			left = limit;
		}
		writer[i] = at;
		left -= bytes[i];
	}
}

size_t shard_plan_group(const uint64_t *bytes, const int *writer, size_t count, uint64_t limit,
	struct shard_group *groups)
{
	size_t made = 0;
	uint64_t filled = 0;
	for (size_t i = 0; i < count; i++) {
		struct shard_group *last = made > 0 ? &groups[made - 1] : NULL;
		bool fits = limit == 0 || (last && filled <= limit && bytes[i] <= limit - filled);
		if (last && last->writer == writer[i] && fits) {
			last->count++;
			filled += bytes[i];
			continue;
		}
		groups[made++] = (struct shard_group) { .first = i, .count = 1, .writer = writer[i] };
		filled = bytes[i];
	}
	return made;
}
