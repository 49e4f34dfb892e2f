/* SPDX-License-Identifier: Apache-2.0 */
/* view: its figures are those of the run, and of the ranks it tells who holds the others up. */
#include "config.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "checkpoint/format/manifest.h"
#include "common/auto.h"
#include "tests/unit/top/view_fixture.h"

static void near(double value, double expected)
{
	if (!(fabs(value - expected) < 1e-6))
		fail_msg("%.9g, not %.9g", value, expected);
}

static const struct view_rank *rank_of(const struct view *view, int rank)
{
	for (size_t i = 0; i < view->count; i++)
		if (view->ranks[i].rank == rank)
			return &view->ranks[i];
	fail_msg("there is no rank %d", rank);
	return NULL;
}

static void the_figures_are_those_of_the_run(void **state)
{
	struct run run;
	(void)state;
	write_run();
	struct view view = view_in(&run, 0);
	assert_int_equal(view.step, 20);
	assert_int_equal(view.steps, -1);
	assert_int_equal(view.last->end, HISTORY_FINISHED);
	assert_int_equal(view.last->status, 0);
	assert_int_equal(view.before->end, HISTORY_KILLED);
	assert_int_equal(view.before->status, -1);
	near(view.loss, (double)(1.0f / 20));
	assert_true(isnan(view.validation) && view.validated == -1);
	near(view.rates.milliseconds, 1000);
	near(view.rates.pace, 1);
	assert_true(isnan(view.rates.tokens) && isnan(view.rates.mfu) && isnan(view.left));
	near(view.goodput, run_time(&run).goodput);
	assert_int_equal(view.count, 0);
	end_view(&view, &run);
}

/* Steps that wait, save and validate take longer than they compute. */
static void rates_are_of_the_newest_steps(void **state)
{
	struct run run;
	(void)state;
	record("start", 0, 0, -1, ",\"world_size\":4,\"steps\":2000");
	steps(0, 1, 1000, 0, ", \"exposed_milliseconds\": 900, \"tokens_per_second\": 1");
	steps(0, 1001, 1010, 1000 + 5,
		", \"exposed_milliseconds\": 250, \"tokens_per_second\": 2000, \"mfu\": 0.5");
	steps(0, 1011, 1100, 1100, ", \"exposed_milliseconds\": 250, \"tokens_per_second\": 2000");
	struct view view = view_in(&run, 0);
	near(view.rates.exposed, 0.25);
	near(view.rates.tokens, 2000);
	assert_true(isnan(view.rates.mfu)); /* of older steps */
	assert_int_equal(view.last->end, HISTORY_KILLED);
	assert_int_equal(view.steps, 2000);
	assert_true(isnan(view.left));
	end_view(&view, &run);
	begin_running();
	view = view_in(&run, 0);
	near(view.left, 900 * view.rates.pace);
	near(view.rates.pace, 1);
	end_view(&view, &run);
}

/* Writes the manifest of a checkpoint whose configuration has the number of steps. */
static void save_manifest(int64_t step, double time)
{
	char path[FILES_PATH_SIZE + 64], name[CKPT_STEP_NAME_SIZE];
	AUTO_FREE char *text = NULL;
	size_t size;
	struct err err;
	struct manifest *manifest = manifest_create();
	assert_non_null(manifest);
	manifest->step = step;
	manifest->time = time;
	manifest->world_size = 4;
	memset(manifest->token, '0', MANIFEST_TOKEN_SIZE - 1);
	manifest->config =
		json_pack("{s:{}, s:{s:i}, s:{}}", "identity", "schedule", "steps", 300, "operation");
	manifest->numerics = json_object();
	if (manifest_encode(manifest, &text, &size, &err) < 0)
		fail_msg("%s", err.text);
	manifest_destroy(manifest);
	snprintf(path, sizeof path, "%s/%s", folder, ckpt_step_name(step, name));
	assert_int_equal(mkdir(path, 0755), 0);
	strcat(path, "/" MANIFEST_NAME);
	FILE *file = fopen(path, "w");
	fwrite(text, 1, size, file);
	assert_int_equal(fclose(file), 0);
}

/* Of a program that logs nothing. */
static void checkpoints_tell_how_far_it_is(void **state)
{
	struct run run;
	struct err err;
	(void)state;
	record("start", 0, 0, -1, ",\"world_size\":4");
	for (int64_t step = 100; step <= 200; step += 100) {
		save_manifest(step, START + (double)step);
		struct view view = view_in(&run, 0);
		assert_int_equal(run.saved, step);
		near(run.saved_at, START + (double)step);
		assert_int_equal(view.step, step);
		assert_int_equal(view.steps, 300);
		view_clear(&view);
		/* One that comes while it is watched is seen, too. */
		save_manifest(step + 50, START + (double)step + 50);
		assert_int_equal(run_update(&run, &err), 0);
		assert_int_equal(run.saved, step + 50);
		run_close(&run);
	}
}

static void who_holds_the_others_up_is_marked(void **state)
{
	struct run run;
	(void)state;
	record("start", 0, clock_wall() - START, -1, ",\"world_size\":4");
	begin_running();
	keep_records();
	for (int slow = 0; slow < RANKS; slow++) {
		for (int rank = 0; rank < RANKS; rank++) {
			if (rank == slow)
				compute(rank, 7);
			else
				wait_in(rank, 7);
		}
		struct view view = view_in(&run, 60);
		assert_int_equal(view.last->end, HISTORY_RUNNING);
		assert_int_equal(view.count, RANKS);
		view_sort(&view, VIEW_HOLDING);
		assert_int_equal(view.ranks[0].rank, slow);
		for (int rank = 0; rank < RANKS; rank++) {
			const struct view_rank *row = rank_of(&view, rank);
			assert_int_equal(row->holds, rank == slow);
			assert_int_equal(row->waits, rank != slow);
			assert_int_equal(row->step, 7);
			assert_true(row->seconds >= 59 && row->behind >= 0);
			assert_string_equal(row->node, rank < 2 ? "n1" : "n2");
		}
		end_view(&view, &run);
	}
	drop_records();
}

/* A wait in each step is nothing to tell. */
static void a_short_wait_marks_nobody(void **state)
{
	struct run run;
	(void)state;
	record("start", 0, clock_wall() - START, -1, ",\"world_size\":4");
	begin_running();
	keep_records();
	compute(0, 7);
	for (int rank = 1; rank < RANKS; rank++)
		wait_in(rank, 7);
	struct view view = view_in(&run, -60);
	for (size_t i = 0; i < view.count; i++)
		assert_true(!view.ranks[i].holds && view.ranks[i].seconds == 0);
	end_view(&view, &run);
	drop_records();
}

/* All wait: those in the earlier step are what the others wait for. In one and the same, it is the
 * network, or nobody. */
static void who_waits_in_an_earlier_step_holds_up(void **state)
{
	struct run run;
	(void)state;
	record("start", 0, clock_wall() - START, -1, ",\"world_size\":4");
	begin_running();
	keep_records();
	for (int late = 0; late < 2; late++) {
		for (int rank = 0; rank < RANKS; rank++)
			wait_in(rank, rank == 1 && late ? 7 : 8);
		struct view view = view_in(&run, 60);
		for (int rank = 0; rank < RANKS; rank++)
			assert_int_equal(rank_of(&view, rank)->holds, rank == 1 && late);
		/* No step is logged: the ranks tell how far the run is. */
		assert_int_equal(view.step, 7);
		assert_true(isnan(view.goodput) && isnan(view.loss) && isnan(view.rates.pace));
		end_view(&view, &run);
	}
	drop_records();
}

static void a_rank_without_a_record_is_there(void **state)
{
	struct run run;
	char path[FILES_PATH_SIZE + 32];
	(void)state;
	record("start", 0, clock_wall() - START, -1, ",\"world_size\":4");
	begin_running();
	keep_records();
	for (int rank = 0; rank < RANKS; rank++)
		wait_in(rank, 7);
	snprintf(path, sizeof path, "%s/" FLIGHT_FOLDER "/rank-00002", folder);
	assert_int_equal(unlink(path), 0);
	struct view view = view_in(&run, 60);
	assert_int_equal(view.count, RANKS);
	assert_int_equal(view.absent, 1);
	assert_true(rank_of(&view, 2)->absent && rank_of(&view, 2)->holds);
	assert_false(rank_of(&view, 3)->absent);
	end_view(&view, &run);
	drop_records();
}

/* A record may lie about the number of ranks, and a file may be none. */
static void a_liar_costs_no_memory(void **state)
{
	struct run run;
	char path[FILES_PATH_SIZE + 32];
	(void)state;
	record("start", 0, 0, -1, "");
	struct flight_recorder *liar = keep_record(100, 1 << 24, "n1");
	snprintf(path, sizeof path, "%s/" FLIGHT_FOLDER "/rank-00002", folder);
	FILE *file = fopen(path, "w");
	fputs("no record", file);
	fclose(file);
	struct view view = view_in(&run, 0);
	assert_int_equal(view.absent, (1 << 24) - 1);
	assert_int_equal(view.count, 1 + VIEW_ABSENT_MOST);
	assert_int_equal(view.damaged, 1);
	end_view(&view, &run);
	flight_destroy(liar);
}

/* Where they stood when the run ended, whenever one looks. */
static void time_stands_still_after_the_end(void **state)
{
	struct run run;
	(void)state;
	write_run();
	keep_records();
	for (int rank = 0; rank < RANKS; rank++)
		wait_in(rank, 21);
	struct view view = view_in(&run, 0);
	const double seconds = rank_of(&view, 0)->seconds;
	end_view(&view, &run);
	view = view_in(&run, 1e6);
	near(rank_of(&view, 0)->seconds, seconds);
	assert_true(seconds < 1e5);
	end_view(&view, &run);
	drop_records();
}

static int compare_ranks(const void *a, const void *b)
{
	return ((const struct view_rank *)a)->rank - ((const struct view_rank *)b)->rank;
}

static bool in_order(const struct view_rank *a, const struct view_rank *b, enum view_order order)
{
	switch (order) {
	case VIEW_HOLDING: return a->holds >= b->holds;
	case VIEW_RANK: return a->rank < b->rank;
	case VIEW_NODE: return strcmp(a->node, b->node) <= 0;
	case VIEW_STEP: return a->step <= b->step;
	case VIEW_TIME: return isnan(b->seconds) || a->seconds >= b->seconds;
	default: return false;
	}
}

/* Each order has all ranks, each once. */
static void orders_only_change_the_order(void **state)
{
	enum { MANY = 50 };
	unsigned seed = 1;
	(void)state;
	for (int order = 0; order < VIEW_ORDERS; order++) {
		struct view_rank ranks[MANY];
		struct view view = { .ranks = ranks, .count = MANY };
		for (int i = 0; i < MANY; i++) {
			ranks[i] = (struct view_rank) { .rank = (i * 7) % MANY,
				.step = rand_r(&seed) % 3,
				.seconds = rand_r(&seed) % 5 ? rand_r(&seed) % 9 : NAN,
				.behind = rand_r(&seed) % 5 ? rand_r(&seed) % 9 : NAN,
				.holds = rand_r(&seed) % 2 };
			snprintf(ranks[i].node, sizeof ranks[i].node, "n%d", rand_r(&seed) % 5);
		}
		view_sort(&view, (enum view_order)order);
		for (int i = 0; i + 1 < MANY; i++)
			assert_true(in_order(&ranks[i], &ranks[i + 1], (enum view_order)order));
		assert_int_equal(view_order_of(view_order_name((enum view_order)order)), order);
		qsort(ranks, MANY, sizeof ranks[0], compare_ranks);
		for (int i = 0; i < MANY; i++)
			assert_int_equal(ranks[i].rank, i);
	}
	assert_int_equal(view_order_of("size"), VIEW_ORDERS);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, make_folder, remove_folder)

int main(void)
{
	const struct CMUnitTest tests[] = { TEST(the_figures_are_those_of_the_run),
		TEST(rates_are_of_the_newest_steps), TEST(checkpoints_tell_how_far_it_is),
		TEST(who_holds_the_others_up_is_marked), TEST(a_short_wait_marks_nobody),
		TEST(who_waits_in_an_earlier_step_holds_up), TEST(a_rank_without_a_record_is_there),
		TEST(a_liar_costs_no_memory), TEST(time_stands_still_after_the_end),
		cmocka_unit_test(orders_only_change_the_order) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
