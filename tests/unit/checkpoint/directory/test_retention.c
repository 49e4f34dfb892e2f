/* SPDX-License-Identifier: Apache-2.0 */
/* Retention over all small cases, held against its definition. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "checkpoint/directory/retention.h"

/* How many of the checkpoints are better than `at`, told in another way than the code does: by
 * sorting. */
static size_t rank_of(const struct retention_item *items, size_t count, size_t at)
{
	size_t order[8], known = 0;
	for (size_t i = 0; i < count; i++) {
		size_t place = known++;
		if (isnan(items[i].validation_loss)) {
			known--;
			continue;
		}
		for (; place > 0 && items[order[place - 1]].validation_loss >= items[i].validation_loss;
			 place--)
			order[place] = order[place - 1];
		order[place] = i;
	}
	for (size_t i = 0; i < known; i++)
		if (order[i] == at)
			return i;
	return count;
}

static void check(const struct retention *policy, const struct retention_item *items, size_t count)
{
	int64_t remove[8];
	size_t at = 0, picked = retention_pick(policy, items, count, remove);
	for (size_t i = 0; i < count; i++) {
		bool stays = policy->keep_last == 0 || i + policy->keep_last >= count || items[i].pinned
			|| (policy->keep_every && items[i].step % policy->keep_every == 0)
			|| rank_of(items, count, i) < policy->keep_best;
		bool goes = at < picked && remove[at] == items[i].step;
		assert_int_equal(goes, !stays);
		at += goes;
	}
	assert_int_equal(at, picked);
}

/* Every policy over every set of up to seven steps, with every choice of pins, and losses that
 * repeat and are missing. */
static void keeps_what_it_must_and_nothing_else(void **state)
{
	static const double losses[][7] = { { 3, 1, 2, 1, NAN, 3, 2 },
		{ NAN, NAN, NAN, NAN, NAN, NAN, NAN }, { 1, 2, 3, 4, 5, 6, 7 }, { 7, 6, 5, 4, 3, 2, 1 },
		{ 1, 1, 1, 1, 1, 1, 1 } };
	for (unsigned set = 0; set < 128; set++)
		for (unsigned pins = 0; pins < 128; pins++)
			for (unsigned policy = 0; policy < 4 * 3 * 3; policy++)
				for (size_t kind = 0; kind < sizeof losses / sizeof losses[0]; kind++) {
					struct retention_item items[7];
					size_t count = 0;
					for (int i = 0; i < 7; i++)
						if (set >> i & 1)
							items[count++] =
								(struct retention_item) { i, losses[kind][i], pins >> i & 1 };
					check(&(struct retention) { policy % 4, policy / 4 % 3 * 2, policy / 12 },
						items, count);
				}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(keeps_what_it_must_and_nothing_else),
	};
	return cmocka_run_group_tests_name("retention", tests, NULL, NULL);
}
