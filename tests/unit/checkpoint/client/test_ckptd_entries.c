/* SPDX-License-Identifier: Apache-2.0 */
/* ckptd_entries: a buffer is one save's until it is given back, what no service has had is refused,
 * and what has had its end is remembered for a while. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "checkpoint/client/ckptd_entries.h"

static struct ckptd_entry *add(struct ckptd_entries *entries, int64_t step, int buffer)
{
	const struct snapshot snapshot = { .at.step = step };
	struct ckptd_entry *entry = ckptd_entries_add(entries, &snapshot, buffer, 0);
	assert_non_null(entry);
	assert_ptr_equal(ckptd_entries_first_new(entries, false), entry);
	entry->complete = true;
	return entry;
}

static void end(struct ckptd_entry *entry, enum save_outcome outcome)
{
	entry->result.outcome = outcome;
	entry->buffer = -1;
}

static void a_buffer_is_one_save_s(void **state)
{
	struct ckptd_entries entries = { 0 };
	struct ckptd_entry *first = add(&entries, 1, 0), *second = add(&entries, 2, 1);
	assert_false(ckptd_entries_is_free(&entries, 0) || ckptd_entries_is_free(&entries, 1));
	assert_true(ckptd_entries_is_free(&entries, 2));
	end(first, SAVE_DURABLE);
	assert_true(ckptd_entries_is_free(&entries, 0));
	assert_int_equal(ckptd_entries_undone(&entries), 1);
	ckptd_entries_drop(&entries, second);
	assert_true(ckptd_entries_is_free(&entries, 1));
	assert_ptr_equal(entries.first, first);
	assert_null(first->next);
	ckptd_entries_clear(&entries);
	assert_null(entries.first);
}

/* A step may be saved again, by a run that has gone back: the last one counts for who waits, the
 * first that runs for the service. */
static void saves_are_found_by_their_step(void **state)
{
	struct ckptd_entries entries = { 0 };
	struct ckptd_entry *failed = add(&entries, 5, 0), *other = add(&entries, 6, 1),
					   *again = add(&entries, 5, 2);
	assert_ptr_equal(ckptd_entries_find(&entries, 5), again);
	assert_ptr_equal(ckptd_entries_running(&entries, 5), failed);
	assert_ptr_equal(ckptd_entries_first_running(&entries), failed);
	end(failed, SAVE_FAILED);
	assert_ptr_equal(ckptd_entries_running(&entries, 5), again);
	assert_ptr_equal(ckptd_entries_first_running(&entries), other);
	end(again, SAVE_DURABLE);
	end(other, SAVE_DURABLE);
	assert_null(ckptd_entries_running(&entries, 5));
	assert_null(ckptd_entries_first_running(&entries));
	assert_ptr_equal(ckptd_entries_find(&entries, 5), again);
	assert_null(ckptd_entries_find(&entries, 7));
	ckptd_entries_clear(&entries);
}

static void only_what_no_service_has_had_is_refused(void **state)
{
	struct ckptd_entries entries = { 0 };
	struct ckptd_entry *handed = add(&entries, 1, 0), *fresh;
	handed->sent = true;
	ckptd_entries_hand(&entries);
	assert_true(handed->handed);
	assert_false(ckptd_entries_have_new(&entries));
	fresh = add(&entries, 2, 1);
	assert_true(ckptd_entries_have_new(&entries));
	ckptd_entries_unsend(&entries);
	assert_ptr_equal(ckptd_entries_first_new(&entries, true), fresh);
	end(fresh, SAVE_REFUSED);
	assert_int_equal(handed->result.outcome, SAVE_RUNS);
	assert_true(handed->handed && !handed->sent);
	assert_false(ckptd_entries_is_free(&entries, 0));
	assert_true(ckptd_entries_is_free(&entries, 1));
	assert_false(ckptd_entries_have_new(&entries));
	/* What was not sent to the service that is there now is not handed over by it. */
	fresh = add(&entries, 3, 1);
	ckptd_entries_hand(&entries);
	assert_false(fresh->handed);
	ckptd_entries_clear(&entries);
}

/* Part 0's save goes on when its own part is written; another part's is over for who waits, and
 * done when all are. */
static void a_written_part_is_over_before_it_is_done(void **state)
{
	struct ckptd_entries first = { 0 }, other = { .part = true };
	struct ckptd_entry *own = add(&first, 1, 0), *part = add(&other, 1, 0),
					   *later = add(&other, 2, 1);
	end(own, SAVE_WRITTEN);
	end(part, SAVE_WRITTEN);
	assert_false(ckptd_entries_is_over(&first, own));
	assert_true(ckptd_entries_is_over(&other, part));
	ckptd_entries_decide(&first, 1);
	assert_int_equal(ckptd_entries_undone(&first), 1);
	ckptd_entries_decide(&other, 2);
	assert_int_equal(ckptd_entries_undone(&other), 2);
	ckptd_entries_decide(&other, 1);
	assert_true(ckptd_entries_is_done(&other, part));
	assert_int_equal(ckptd_entries_undone(&other), 1);
	end(later, SAVE_WRITTEN);
	ckptd_entries_decide(&other, -1);
	assert_int_equal(ckptd_entries_undone(&other), 0);
	ckptd_entries_clear(&first);
	ckptd_entries_clear(&other);
}

static void the_last_few_are_remembered(void **state)
{
	struct ckptd_entries entries = { 0 };
	struct ckptd_entry *runs = add(&entries, 0, 0);
	for (int64_t step = 1; step <= 20; step++) {
		end(add(&entries, step, 1), step % 2 ? SAVE_DURABLE : SAVE_FAILED);
		ckptd_entries_forget_old(&entries);
	}
	/* What has not had its end is never forgotten, however old it is. */
	assert_ptr_equal(ckptd_entries_find(&entries, 0), runs);
	assert_null(ckptd_entries_find(&entries, 12));
	for (int64_t step = 13; step <= 20; step++)
		assert_non_null(ckptd_entries_find(&entries, step));
	ckptd_entries_clear(&entries);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_buffer_is_one_save_s),
		cmocka_unit_test(saves_are_found_by_their_step),
		cmocka_unit_test(only_what_no_service_has_had_is_refused),
		cmocka_unit_test(a_written_part_is_over_before_it_is_done),
		cmocka_unit_test(the_last_few_are_remembered),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
