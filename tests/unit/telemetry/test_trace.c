/* SPDX-License-Identifier: Apache-2.0 */
/* trace, trace_clock and trace_file: what is kept and what is left out, times on one axis, and a
 * file that a JSON reader takes. */
#include "config.h"

#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/unit/files.h"
#include "tests/unit/trainer/comm/world_fixture.h"
#include "trainer/run/trace_clock.h"
#include "trainer/run/trace_file.h"

#define WORLD 3

static void spans_are_kept_up_to_the_room(void **state)
{
	struct err err;
	struct trace *trace = trace_create(3, &err);
	assert_non_null(trace);
	assert_true(trace_begin(trace) == 0);
	trace_end(trace, trace_begin(trace), "before");
	trace_step(trace, 7);
	double begin = trace_begin(trace);
	assert_true(begin > 0);
	trace_end(trace, begin, "backward of layer %d", 4);
	struct trace_span span = { .begin = begin,
		.end = begin + 1,
		.thread = TRACE_COMMUNICATION,
		.name = "exchange: bucket 3 of step 7" };
	for (int i = 0; i < 5; i++)
		trace_add(trace, &span);
	trace_end(trace, begin, "%s",
		"a name that is so long that its end can't be kept, whatever the end of it is");
	trace_step(trace, 0);
	trace_add(trace, &span);
	assert_int_equal(trace->count[TRACE_COMPUTE], 2);
	assert_int_equal(trace->count[TRACE_COMMUNICATION], 3);
	assert_int_equal(trace->dropped[TRACE_COMPUTE], 0);
	assert_int_equal(trace->dropped[TRACE_COMMUNICATION], 2);
	const struct trace_span *kept = &trace->spans[TRACE_COMPUTE][0];
	assert_string_equal(kept->name, "backward of layer 4");
	assert_int_equal(kept->step, 7);
	assert_true(kept->begin == begin && kept->end >= begin);
	assert_string_equal(trace->spans[TRACE_COMMUNICATION][2].name, "exchange: bucket 3");
	assert_int_equal(strlen(trace->spans[TRACE_COMPUTE][1].name), sizeof span.name - 1);
	trace_destroy(trace);
}

static void nothing_is_recorded_without_a_trace(void **state)
{
	struct trace_span span = { .begin = 1, .end = 2 };
	trace_step(NULL, 3);
	assert_true(trace_begin(NULL) == 0);
	trace_end(NULL, 1, "x");
	trace_add(NULL, &span);
	trace_destroy(NULL);
}

/* A clock that began 1000 s before rank 0's and gains 50 ppm. */
static void a_clock_that_drifts_is_straightened(void **state)
{
	const double start = 20, gain = 50e-6;
	const struct trace_clock before = { start, 1000, 1e-6 },
							 after = { start + 100, 1000 + 100 * gain, 1e-6 };
	for (double at = start; at <= start + 100; at += 12.5)
		assert_true(fabs(trace_clock_on_axis(&before, &after, at + 1000 + (at - start) * gain) - at)
			< 1e-6);
	const struct trace_clock same = { start, 0, 0 };
	assert_true(trace_clock_on_axis(&same, &same, 33) == 33);
}

/* All ranks of this machine read one clock: the measured offset is off by no more than the error
 * that is given. */
static int measure_body(struct comm *comm, void *arg, struct err *err)
{
	struct trace_clock clocks[WORLD] = { 0 };
	double begun = clock_now();
	if (trace_clock_measure(comm, comm_rank(comm) == 0 ? clocks : NULL, err) < 0)
		return -1;
	for (int rank = 1; rank < WORLD && comm_rank(comm) == 0; rank++) {
		WORLD_CHECK(clocks[rank].error > 0 && clocks[rank].error < 1);
		WORLD_CHECK(fabs(clocks[rank].offset) <= clocks[rank].error + 1e-9);
		WORLD_CHECK(clocks[rank].at > begun && clocks[rank].at < clock_now());
	}
	return 0;
}

static void clocks_are_compared_as_well_as_is_said(void **state)
{
	struct world_rank ranks[WORLD];
	world_run(WORLD, 10, measure_body, NULL, ranks);
	world_assert_ok(WORLD, ranks);
}

/* Steps 1 to 4, of which 2 and 3 are traced; each exchanges something under a span, and between the
 * two there is another. */
static int file_body(struct comm *comm, void *arg, struct err *err)
{
	int me = comm_rank(comm), all[WORLD];
	char node[16];
	snprintf(node, sizeof node, "n\"%d", me);
	struct trace_file *file = trace_file_open(arg, node, 2, 3, comm, err);
	if (!file)
		return -1;
	struct trace *trace = trace_file_recorder(file);
	comm_trace(comm, trace);
	double busy = comm_busy(comm);
	for (uint64_t step = 1; step <= 4; step++) {
		if (trace_file_step(file, step, err) < 0)
			return -1;
		double begin = trace_begin(trace);
		if (comm_wait(comm, comm_allgather(comm, "control of step 9", &me, all, sizeof me), err)
			< 0)
			return -1;
		trace_end(trace, begin, "step %d", (int)step);
		if (trace_file_finish(file, step, step == 4, err) < 0)
			return -1;
		WORLD_CHECK((access(arg, F_OK) == 0) == (me == 0 && step >= 3) || me != 0);
	}
	WORLD_CHECK(comm_busy(comm) > busy);
	comm_trace(comm, NULL);
	trace_file_close(file);
	return 0;
}

static void count_spans(const json_t *events, int rank, int counts[3])
{
	const json_t *event;
	size_t i;
	json_array_foreach(events, i, event)
	{
		const char *name = json_string_value(json_object_get(event, "name"));
		if (json_integer_value(json_object_get(event, "pid")) != rank
			|| json_string_value(json_object_get(event, "ph"))[0] != 'X')
			continue;
		assert_true(json_number_value(json_object_get(event, "ts")) >= 0);
		counts[strncmp(name, "step ", 5) == 0 ? 0 : strcmp(name, "wait") == 0 ? 1 : 2]++;
		if (strncmp(name, "all", 3) != 0)
			continue;
		assert_string_equal(name, "all-gather: control");
		assert_int_equal(json_integer_value(
							 json_object_get(json_object_get(event, "args"), "bytes")),
			2 * sizeof(int));
		assert_true(json_number_value(json_object_get(json_object_get(event, "args"), "ready"))
			<= json_number_value(json_object_get(event, "ts")));
	}
}

static void the_file_holds_all_ranks_spans(void **state)
{
	char folder[FILES_PATH_SIZE], path[FILES_PATH_SIZE + 20];
	struct world_rank ranks[WORLD];
	json_error_t error;
	assert_int_equal(files_make_folder(folder), 0);
	snprintf(path, sizeof path, "%s/trace.json", folder);
	world_run(WORLD, 10, file_body, path, ranks);
	world_assert_ok(WORLD, ranks);
	json_t *json = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
	if (!json)
		fail_msg("line %d: %s", error.line, error.text);
	const json_t *events = json_object_get(json, "traceEvents");
	for (int rank = 0; rank < WORLD; rank++) {
		int counts[3] = { 0 };
		count_spans(events, rank, counts);
		for (int i = 0; i < 3; i++)
			assert_int_equal(counts[i], 2);
		const json_t *name =
			json_object_get(json_object_get(json_array_get(events, (size_t)rank * 6), "args"),
				"name");
		char expected[40];
		snprintf(expected, sizeof expected, "rank %d on n\"%d", rank, rank);
		assert_string_equal(json_string_value(name), expected);
	}
	const json_t *other = json_object_get(json, "otherData");
	assert_string_equal(json_string_value(json_object_get(other, "steps")), "2-3");
	assert_int_equal(json_array_size(json_object_get(other, "clocks")), WORLD);
	json_decref(json);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(rmdir(folder), 0); /* and there is no FILE.part */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(spans_are_kept_up_to_the_room),
		cmocka_unit_test(nothing_is_recorded_without_a_trace),
		cmocka_unit_test(a_clock_that_drifts_is_straightened),
		cmocka_unit_test(clocks_are_compared_as_well_as_is_said),
		cmocka_unit_test(the_file_holds_all_ranks_spans),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
