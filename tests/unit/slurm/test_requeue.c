/* SPDX-License-Identifier: Apache-2.0 */
/* When a job is put back, and the note and the count that keep it from being put back. */
#include "config.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/auto.h"
#include "slurm/requeue.h"

static struct requeue_job job_in(enum requeue_state state)
{
	return (struct requeue_job) { .id = 12,
		.attempt = 3,
		.state = state,
		.batch = true,
		.requeueable = true,
		.comment = "" };
}

static struct requeue_end end_of(int attempt, long step, double when)
{
	return (struct requeue_end) { .attempt = attempt, .step = step, .when = when };
}

static enum requeue_action decide(const struct requeue_job *job, int attempt, long step,
	const char *word)
{
	char reason[300] = "";
	struct requeue_end end = end_of(attempt, step, INFINITY);
	enum requeue_action action = requeue_decide(job, &end, reason, sizeof reason);
	assert_non_null(strstr(reason, word));
	return action;
}

static void each_state_has_its_action(void **state)
{
	static const struct {
		enum requeue_state state;
		enum requeue_action action;
		const char *word;
	} cases[] = {
		{ REQUEUE_RUNNING, REQUEUE_SUBMIT, "" },
		{ REQUEUE_TIMEOUT, REQUEUE_REVIVE, "" },
		{ REQUEUE_CANCELLED, REQUEUE_NOTHING, "cancelled" },
		{ REQUEUE_WAITING, REQUEUE_NOTHING, "queue" },
		{ REQUEUE_ENDED, REQUEUE_NOTHING, "ended" },
		{ REQUEUE_FAILED, REQUEUE_NOTHING, "ended" },
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct requeue_job job = job_in(cases[i].state);
		assert_int_equal(decide(&job, 3, 0, cases[i].word), cases[i].action);
		/* A node that was cut off and speaks for an older attempt never touches the job, whatever
		 * its state. */
		assert_int_equal(decide(&job, 2, 0, "attempt 3, not 2"), REQUEUE_NOTHING);
		assert_int_equal(decide(&job, 4, 0, "attempt 3, not 4"), REQUEUE_NOTHING);
	}
}

/* Not before it has ended on all its nodes: that may crash slurmctld. */
static void a_job_that_has_ended_comes_back_when_nothing_is_left_of_it(void **state)
{
	char reason[300];
	const struct requeue_end first = end_of(3, 0, INFINITY);
	const struct requeue_end again = { 3, 0, INFINITY, .asked = true };
	struct requeue_job job = job_in(REQUEUE_TIMEOUT);
	job.completing = true;
	assert_int_equal(requeue_decide(&job, &first, reason, sizeof reason), REQUEUE_LATER);
	job = job_in(REQUEUE_FAILED);
	assert_int_equal(requeue_decide(&job, &first, reason, sizeof reason), REQUEUE_NOTHING);
	assert_int_equal(requeue_decide(&job, &again, reason, sizeof reason), REQUEUE_REVIVE);
	job.completing = true;
	assert_int_equal(requeue_decide(&job, &again, reason, sizeof reason), REQUEUE_LATER);
	job.attempt = 4;
	assert_int_equal(requeue_decide(&job, &again, reason, sizeof reason), REQUEUE_NOTHING);
	static const enum requeue_state others[] = { REQUEUE_WAITING, REQUEUE_CANCELLED,
		REQUEUE_ENDED };
	for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
		job = job_in(others[i]);
		assert_int_equal(requeue_decide(&job, &again, reason, sizeof reason), REQUEUE_NOTHING);
	}
}

static void what_cannot_be_put_back_is_refused(void **state)
{
	struct requeue_job job = job_in(REQUEUE_RUNNING);
	job.requeueable = false;
	assert_int_equal(decide(&job, 3, 0, "--no-requeue"), REQUEUE_REFUSED);
	job.batch = false;
	assert_int_equal(decide(&job, 3, 0, "sbatch"), REQUEUE_REFUSED);
	job.state = REQUEUE_CANCELLED;
	assert_int_equal(decide(&job, 3, 0, "cancelled"), REQUEUE_NOTHING);
}

/* What fails while Slurm takes the nodes away is not the job's fault, whichever rank noted an end
 * for good in that moment. */
static void a_notice_answers_for_what_fails(void **state)
{
	struct requeue_job job = job_in(REQUEUE_RUNNING);
	assert_null(requeue_notice(&job));
	const struct requeue_end end = end_of(3, 1, 7);
	AUTO_FREE char *noted = job.comment = requeue_note("", &end, "why");
	job.preempted = true;
	assert_non_null(strstr(requeue_notice(&job), "preempted"));
	assert_int_equal(decide(&job, 3, 1, ""), REQUEUE_SUBMIT);
	job.preempted = false;
	job.draining = true;
	assert_non_null(strstr(requeue_notice(&job), "drained"));
	assert_int_equal(decide(&job, 3, 1, ""), REQUEUE_SUBMIT);
	static const enum requeue_state ended[] = { REQUEUE_WAITING, REQUEUE_CANCELLED, REQUEUE_ENDED };
	for (size_t i = 0; i < sizeof ended / sizeof ended[0]; i++) {
		job.state = ended[i];
		assert_null(requeue_notice(&job));
	}
	job.state = REQUEUE_TIMEOUT;
	assert_non_null(strstr(requeue_notice(&job), "time"));
}

static void a_step_that_ended_for_good_stays_ended(void **state)
{
	struct requeue_job job = job_in(REQUEUE_RUNNING);
	const struct requeue_end end = end_of(3, 1, 1763740000.5);
	AUTO_FREE char *noted = job.comment = requeue_note("", &end, "rank 2 exited with status 1");
	assert_int_equal(decide(&job, 3, 1, "rank 2 exited with status 1"), REQUEUE_NOTHING);
	assert_int_equal(decide(&job, 3, REQUEUE_ANY_STEP, "rank 2"), REQUEUE_NOTHING);
	/* Not so a later step of the script, nor the next attempt. */
	assert_int_equal(decide(&job, 3, 2, ""), REQUEUE_SUBMIT);
	job.attempt = 4;
	assert_int_equal(decide(&job, 4, 1, ""), REQUEUE_SUBMIT);
}

static bool noted(const char *comment, int attempt, long step, double when)
{
	const struct requeue_end end = end_of(attempt, step, when);
	return requeue_noted(comment, &end);
}

/* It failed because that one was killed, not the other way round. */
static void an_end_counts_for_later_ones(void **state)
{
	const struct requeue_end end = end_of(0, 2, 1763740000.5);
	AUTO_FREE char *comment = requeue_note("", &end, "why");
	assert_true(noted(comment, 0, 2, 1763740000.5));
	assert_true(noted(comment, 0, 2, 1763740009));
	assert_true(noted(comment, 0, 2, 1763740000.45)); /* clocks differ by so much */
	assert_false(noted(comment, 0, 2, 1763740000.3));
	assert_false(noted(comment, 0, REQUEUE_ANY_STEP, 1763739000));
	assert_true(noted(comment, 0, REQUEUE_ANY_STEP, INFINITY));
	/* Who has lost a peer may say so before that one's node notices; not long before. */
	struct requeue_end lost = { 0, 2, 1763739999.6, .lost = true };
	assert_true(requeue_noted(comment, &lost));
	assert_false(noted(comment, 0, 2, lost.when));
	lost.when -= 0.2;
	assert_false(requeue_noted(comment, &lost));
}

static void a_note_keeps_the_users_comment_and_replaces_older_notes(void **state)
{
	const struct requeue_end first = end_of(0, 1, 7.25), second = end_of(1, 0, 8);
	AUTO_FREE char *once = requeue_note("mine; and more", &first, "why"),
				   *twice = requeue_note(once, &second, "again");
	assert_string_equal(once,
		"mine; and more; muster: attempt 0 step 1 ended for good at 7.250000: why");
	assert_string_equal(twice,
		"mine; and more; muster: attempt 1 step 0 ended for good at 8.000000: again");
	assert_false(noted(twice, 0, 1, INFINITY));
	assert_true(noted(twice, 1, 0, INFINITY));
	assert_false(noted("mine", 0, 0, INFINITY));
	assert_false(noted("muster: attempt of mine", 0, 0, INFINITY));
}

/* What a row of attempts comes to: "v" failed in vain, "p" with progress, "-" was taken away; each
 * "v" is counted by two nodes. */
static int row(const char *attempts)
{
	AUTO_FREE char *comment = strdup("mine");
	int vain = 0;
	for (int i = 0; attempts[i]; i++)
		for (int node = 0; node < 2 && attempts[i] != '-'; node++) {
			vain = attempts[i] == 'p' ? 0 : requeue_vain(comment, i);
			char *counted = requeue_count(comment, vain, i);
			assert_true(requeue_is_counted(counted, i));
			assert_false(requeue_is_counted(counted, i + 1));
			free(comment);
			comment = counted;
		}
	assert_true(strncmp(comment, "mine; muster: ", 14) == 0);
	return vain;
}

static void attempts_in_vain_are_counted_in_a_row(void **state)
{
	assert_int_equal(row("v"), 1);
	assert_int_equal(row("vvv"), 3);
	assert_int_equal(row("vvpvv"), 2);
	assert_int_equal(row("vv-vv"), 2);
	assert_int_equal(row("--vvv"), 3);
	/* Put back by hand when it had been ended. */
	assert_int_equal(row("vvvv"), 1);
	/* Another node knows of progress in the attempt that this one is about to count. */
	AUTO_FREE char *told = requeue_count("", 0, 4);
	assert_int_equal(requeue_vain(told, 4), 0);
	assert_int_equal(requeue_vain(told, 5), 1);
	assert_int_equal(requeue_vain("muster: attempts in vain: of mine", 5), 1);
	assert_int_equal(requeue_vain("muster: attempts in vain: -7 up to 4", 5), 1);
}

static void count_and_note_stand_side_by_side(void **state)
{
	const struct requeue_end first = end_of(0, 1, 7), second = end_of(1, 0, 8);
	AUTO_FREE char *counted = requeue_count("mine", 1, 0),
				   *noted = requeue_note(counted, &first, "why");
	assert_string_equal(noted,
		"mine; muster: attempts in vain: 1 up to 0; muster: attempt 0 step 1 ended for good at "
		"7.000000: why");
	AUTO_FREE char *again = requeue_count(noted, 2, 1), *last = requeue_note(again, &second, "end");
	assert_string_equal(last,
		"mine; muster: attempts in vain: 2 up to 1; muster: attempt 1 step 0 ended for good at "
		"8.000000: end");
	AUTO_FREE char *note_first = requeue_note("", &first, "why"),
				   *both = requeue_count(note_first, 1, 0);
	assert_string_equal(both,
		"muster: attempts in vain: 1 up to 0; muster: attempt 0 step 1 ended for good at 7.000000: "
		"why");
	/* However long the user's comment is. */
	char mine[20000];
	memset(mine, 'x', sizeof mine - 1);
	mine[sizeof mine - 1] = '\0';
	AUTO_FREE char *long_count = requeue_count(mine, 1, 0),
				   *long_note = requeue_note(long_count, &first, "why");
	assert_int_equal(strncmp(long_note, mine, sizeof mine - 1), 0);
	assert_true(requeue_is_counted(long_note, 0));
	assert_true(requeue_noted(long_note, &first));
}

static void an_attempt_runs_until_its_nodes_are_clean(void **state)
{
	static const enum requeue_state states[] = { REQUEUE_RUNNING, REQUEUE_WAITING, REQUEUE_TIMEOUT,
		REQUEUE_FAILED, REQUEUE_CANCELLED, REQUEUE_ENDED };
	for (size_t i = 0; i < sizeof states / sizeof states[0]; i++) {
		struct requeue_job job = job_in(states[i]);
		assert_int_equal(requeue_attempt_runs(&job, 3), states[i] == REQUEUE_RUNNING);
		assert_false(requeue_attempt_runs(&job, 2));
		job.completing = true;
		assert_true(requeue_attempt_runs(&job, 3));
		assert_true(requeue_attempt_runs(&job, 2));
		assert_false(requeue_attempt_runs(&job, 1));
		assert_false(requeue_attempt_runs(&job, 4));
	}
}

static void a_job_without_the_node_of_its_script_is_deserted(void **state)
{
	assert_true(requeue_deserted("n[2-4]", 3, "n1"));
	assert_true(requeue_deserted("n2", 1, "n1"));
	assert_true(requeue_deserted("n[10-12],m1", 4, "n1"));
	assert_false(requeue_deserted("n[1-4]", 4, "n1"));
	assert_false(requeue_deserted("m[1-2],n1", 3, "n1"));
	/* It has none yet, or none any more. */
	assert_false(requeue_deserted(NULL, 0, NULL));
	assert_false(requeue_deserted("", 0, "n1"));
	assert_false(requeue_deserted("n[2-4]", 3, NULL));
	assert_false(requeue_deserted("n[2-4]", 3, ""));
	/* Who can't read the list knows nothing. */
	assert_false(requeue_deserted("n[2-4]", 4, "n1"));
	assert_false(requeue_deserted("n[0-1]x[0-1]", 4, "n0x1"));
	assert_false(requeue_deserted("n[2-", 3, "n1"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_state_has_its_action),
		cmocka_unit_test(a_job_that_has_ended_comes_back_when_nothing_is_left_of_it),
		cmocka_unit_test(what_cannot_be_put_back_is_refused),
		cmocka_unit_test(a_notice_answers_for_what_fails),
		cmocka_unit_test(a_step_that_ended_for_good_stays_ended),
		cmocka_unit_test(an_end_counts_for_later_ones),
		cmocka_unit_test(an_attempt_runs_until_its_nodes_are_clean),
		cmocka_unit_test(a_job_without_the_node_of_its_script_is_deserted),
		cmocka_unit_test(a_note_keeps_the_users_comment_and_replaces_older_notes),
		cmocka_unit_test(attempts_in_vain_are_counted_in_a_row),
		cmocka_unit_test(count_and_note_stand_side_by_side),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
