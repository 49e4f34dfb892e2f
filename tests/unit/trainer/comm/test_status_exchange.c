/* SPDX-License-Identifier: Apache-2.0 */
/* agree, state and numerics over real processes: one rank's failure is everybody's, and everybody
 * gets rank 0's state. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/build_id.h"
#include "tests/unit/trainer/comm/world_fixture.h"
#include "trainer/comm/status_exchange.h"
#include "trainer/run/numerics.h"
#include "trainer/state/state.h"

#define WORLD 4

/* Ranks of the mask fail, those of the upper half with other words and status. */
static int stage_body(struct comm *comm, void *arg, struct err *err)
{
	unsigned failing = *(unsigned *)arg;
	int rank = comm_rank(comm), rc = 0;
	if (failing >> rank & 1)
		rc = err_fail(err, rank < WORLD / 2 ? EXIT_DATA : EXIT_USAGE,
			rank < WORLD / 2 ? "bad data" : "bad option");
	char node[8];
	snprintf(node, sizeof node, "n%d", rank);
	return status_exchange(comm, "stage", node, rc, err);
}

static void all_ranks_end_as_the_lowest_that_failed(void **state)
{
	for (unsigned failing = 0; failing < 1u << WORLD; failing++) {
		struct world_rank ranks[WORLD];
		world_run(WORLD, 10, stage_body, &failing, ranks);
		for (int rank = 0; rank < WORLD; rank++) {
			int lowest = failing ? __builtin_ctz(failing) : -1;
			assert_true(ranks[rank].finished);
			assert_int_equal(ranks[rank].rc, failing ? ERR_SHARED : 0);
			if (!failing)
				continue;
			char front[40];
			snprintf(front, sizeof front, "rank %d on n%d", lowest, lowest);
			assert_memory_equal(ranks[rank].err.text, front, strlen(front));
			assert_non_null(
				strstr(ranks[rank].err.text, lowest < WORLD / 2 ? "bad data" : "bad option"));
			assert_int_equal(ranks[rank].err.status, lowest < WORLD / 2 ? EXIT_DATA : EXIT_USAGE);
		}
	}
}

static void same_words_are_counted_not_repeated(void **state)
{
	unsigned failing = 3;
	struct world_rank ranks[WORLD];
	world_run(WORLD, 10, stage_body, &failing, ranks);
	assert_string_equal(ranks[WORLD - 1].err.text, "rank 0 on n0 and 1 other: bad data");
}

static int mixed_body(struct comm *comm, void *arg, struct err *err)
{
	int rank = comm_rank(comm);
	int rc = rank == 1 ? err_fail(err, EXIT_LOST, "no answer")
		: rank == 2    ? err_fail(err, EXIT_FAULT, "the cause")
					   : 0;
	return status_exchange(comm, "stage", "n", rc, err);
}

/* Otherwise than in the rendezvous, no status goes before another. */
static void the_lowest_counts_whatever_its_status(void **state)
{
	struct world_rank ranks[WORLD];
	world_run(WORLD, 10, mixed_body, NULL, ranks);
	for (int rank = 0; rank < WORLD; rank++) {
		assert_int_equal(ranks[rank].err.status, EXIT_LOST);
		assert_string_equal(ranks[rank].err.text, "rank 1 on n: no answer");
	}
}

static void fill(float *arena, size_t count, float first)
{
	for (size_t i = 0; i < count; i++)
		arena[i] = first + (float)i;
}

static int share_body(struct comm *comm, void *arg, struct err *err)
{
	struct ops *ops = ops_cpu_create(true, err);
	struct state state, wanted;
	const struct tensor_table *table = arg;
	WORLD_CHECK(ops && state_alloc(&state, ops, table, NULL, 0, err) == 0
		&& state_alloc(&wanted, ops, table, NULL, 0, err) == 0);
	fill(wanted.weights, table->elements, 1);
	fill(wanted.m, table->elements, 1e6f);
	fill(wanted.v, table->elements, 2e6f);
	if (comm_rank(comm) == 0) {
		state.step = 1234567890123;
		memcpy(state.weights, wanted.weights, table->elements * sizeof(float));
		memcpy(state.m, wanted.m, table->elements * sizeof(float));
		memcpy(state.v, wanted.v, table->elements * sizeof(float));
	}
	if (state_share(&state, comm, err) < 0)
		return -1;
	WORLD_CHECK(state.step == 1234567890123);
	WORLD_CHECK(memcmp(state.weights, wanted.weights, table->elements * sizeof(float)) == 0);
	WORLD_CHECK(memcmp(state.m, wanted.m, table->elements * sizeof(float)) == 0);
	WORLD_CHECK(memcmp(state.v, wanted.v, table->elements * sizeof(float)) == 0);
	return 0;
}

/* Larger than one chunk of the broadcast, and not a multiple of it. */
static void everybody_gets_the_state_of_rank_0(void **state)
{
	struct tensor_table table = { 0 };
	struct tensor row = { .name = "w",
		.dims = 2,
		.shape = { 4711, 1003 },
		.padded = { 4711, 1003 } };
	struct world_rank ranks[WORLD];
	assert_int_equal(tensor_table_add(&table, &row, NULL), 0);
	world_run(WORLD, 20, share_body, &table, ranks);
	world_assert_ok(WORLD, ranks);
	tensor_table_clear(&table);
}

/* More than a line has room for, such as the algorithms of a GPU's products; the last of its bytes
 * differs. */
static json_t *long_text(char last)
{
	char text[5001];
	memset(text, 'a', sizeof text - 2);
	text[sizeof text - 2] = last;
	text[sizeof text - 1] = '\0';
	return json_string(text);
}

static int long_body(struct comm *comm, void *arg, struct err *err)
{
	bool differs = *(bool *)arg;
	json_t *record = json_pack("{s:o, s:i}", "products",
		long_text(differs && comm_rank(comm) == 1 ? 'y' : 'x'), "slots", 8);
	int rc = numerics_agree(comm, record, true, err);
	json_decref(record);
	return rc;
}

static void long_values_are_compared_to_their_end(void **state)
{
	struct world_rank ranks[WORLD];
	for (int differs = 0; differs < 2; differs++) {
		bool arg = differs;
		world_run(WORLD, 10, long_body, &arg, ranks);
		for (int rank = 0; rank < WORLD; rank++)
			assert_int_equal(ranks[rank].rc, differs ? ERR_SHARED : 0);
	}
	assert_non_null(strstr(ranks[0].err.text, "rank 1 has {\"products\":\"a text with the hash "));
	json_t *old = json_pack("{s:o}", "products", long_text('x')),
		   *new = json_pack("{s:o}", "products", long_text('y'));
	json_t *changes = json_array();
	struct err err;
	assert_int_equal(numerics_compare(old, new, false, 5, changes, &err), 0);
	const char *from = json_string_value(json_object_get(json_array_get(changes, 0), "from"));
	const char *to = json_string_value(json_object_get(json_array_get(changes, 0), "to"));
	assert_non_null(strstr(from, "a text with the hash "));
	assert_string_not_equal(from, to);
	json_decref(old);
	json_decref(new);
	json_decref(changes);
}

static int numerics_body(struct comm *comm, void *arg, struct err *err)
{
	bool refuse = *(bool *)arg;
	json_t *record =
		json_pack("{s:s, s:i}", "isa", comm_rank(comm) == 2 ? "avx2" : "avx512", "slots", 8);
	int rc = numerics_agree(comm, record, refuse, err);
	json_decref(record);
	return rc;
}

static void ranks_with_other_numerics_are_refused_if_asked(void **state)
{
	struct world_rank ranks[WORLD];
	for (int refuse = 0; refuse < 2; refuse++) {
		bool arg = refuse;
		world_run(WORLD, 10, numerics_body, &arg, ranks);
		for (int rank = 0; rank < WORLD; rank++) {
			assert_true(ranks[rank].finished);
			assert_int_equal(ranks[rank].rc, refuse ? ERR_SHARED : 0);
			if (refuse)
				assert_non_null(strstr(ranks[rank].err.text, "rank 2 has"));
		}
	}
}

static void differences_of_numerics_are_recorded_both_ways(void **state)
{
	json_t *old = json_pack("{s:s, s:i, s:s}", "isa", "avx2", "slots", 8, "gone", "x");
	json_t *new = json_pack("{s:s, s:i, s:s}", "isa", "avx512", "slots", 8, "added", "y");
	json_t *changes = json_array();
	struct err err;
	assert_int_equal(numerics_compare(old, old, true, 5, changes, &err), 0);
	assert_int_equal(json_array_size(changes), 0);
	assert_int_equal(numerics_compare(old, new, true, 5, changes, &err), -1);
	assert_int_equal(err.status, EXIT_DATA);
	assert_int_equal(numerics_compare(old, new, false, 5, changes, &err), 0);
	assert_int_equal(json_array_size(changes), 3);
	const json_t *first = json_array_get(changes, 0);
	assert_string_equal(json_string_value(json_object_get(first, "from")), "avx2");
	assert_string_equal(json_string_value(json_object_get(first, "to")), "avx512");
	assert_int_equal(json_integer_value(json_object_get(first, "step")), 5);
	json_decref(old);
	json_decref(new);
	json_decref(changes);
}

static void the_program_has_a_build_id(void **state)
{
	const char *id = build_id();
	assert_true(strlen(id) >= 16 || strcmp(id, "none") == 0);
	assert_int_equal(strspn(id, "0123456789abcdefno"), strlen(id));
	assert_string_equal(id, build_id());
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_ranks_end_as_the_lowest_that_failed),
		cmocka_unit_test(same_words_are_counted_not_repeated),
		cmocka_unit_test(the_lowest_counts_whatever_its_status),
		cmocka_unit_test(everybody_gets_the_state_of_rank_0),
		cmocka_unit_test(ranks_with_other_numerics_are_refused_if_asked),
		cmocka_unit_test(differences_of_numerics_are_recorded_both_ways),
		cmocka_unit_test(long_values_are_compared_to_their_end),
		cmocka_unit_test(the_program_has_a_build_id),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
