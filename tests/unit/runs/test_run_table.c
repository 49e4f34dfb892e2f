/* SPDX-License-Identifier: Apache-2.0 */
/* run_table: all numbers of a metrics file become cells, in any order of lines and keys; several
 * attempts merge into the rows that count. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "runs/run_table.h"

#define START 1767225600.0 /* 2026-01-01T00:00:00Z */

static struct run_table parse(const char *text)
{
	struct run_table table;
	struct err err;
	if (run_table_parse(text, strlen(text), &table, &err) < 0)
		fail_msg("%s", err.text);
	return table;
}

static void cell(const struct run_table *table, size_t row, const char *name, double expected)
{
	const double value = run_table_value(table, name, row);
	if (isnan(expected) ? !isnan(value) : value != expected)
		fail_msg("row %zu, %s: %g, not %g", row, name, value, expected);
}

static void assert_samples(const struct run_table *table, const char *json)
{
	char *text = json_dumps(table->samples, JSON_COMPACT);
	assert_string_equal(text, json);
	free(text);
}

static void values_of_all_kinds_become_cells(void **state)
{
	(void)state;
	struct run_table table = parse(
		"{\"step\": 5, \"loss\": null, \"loss_bits\": \"7fc00000\", \"skipped\": true, \"note\": "
		"\"x\", \"accuracy\": 0.5, \"odd_bits\": \"7fc0000g\", \"time\": "
		"\"2026-01-01T00:00:05.250Z\"}\n"
		"{\"step\": 5, \"validation_loss\": 2, \"validation_loss_bits\": \"40000000\", \"time\": "
		"\"2026-01-01T00:00:09.000Z\"}\n"
		"{\"step\": 5, \"checkpoint\": {\"stall\": 0.25, \"bytes\": 1000, \"by\": \"x\"}, "
		"\"time\": \"2026-01-01T00:00:11.000Z\"}\n"
		"{\"step\": 5, \"sample\": \"a text\", \"time\": \"2026-01-01T00:00:12.000Z\"}\n"
		"{\"step\": 6, \"sample\": \"of a step that is no row\"}\n"
		"{\"hardware\": {\"processors\": 2}}\n");
	assert_int_equal(table.count, 1);
	assert_int_equal(table.bad_line, 0);
	assert_int_equal(table.steps[0], 5);
	cell(&table, 0, "loss", NAN);
	cell(&table, 0, "loss_bits", 0x7fc00000);
	cell(&table, 0, "skipped", 1);
	cell(&table, 0, "note", NAN);
	cell(&table, 0, "accuracy", 0.5);
	cell(&table, 0, "odd_bits", NAN);
	cell(&table, 0, "time", START + 5.25);
	cell(&table, 0, "validation_loss", 2);
	cell(&table, 0, "validation_time", START + 9);
	cell(&table, 0, "checkpoint.stall", 0.25);
	cell(&table, 0, "checkpoint.bytes", 1000);
	cell(&table, 0, "checkpoint.by", NAN);
	cell(&table, 0, "checkpoint.time", START + 11);
	assert_true(table.time == START + 11);
	assert_samples(&table, "[[5,\"a text\"],[6,\"of a step that is no row\"]]");
	run_table_clear(&table);
}

/* A program may log what it likes about any step, when it likes. */
static void rows_are_in_the_order_of_steps(void **state)
{
	(void)state;
	struct run_table table = parse("{\"step\": 5, \"a\": 1}\n{\"step\": 9, \"a\": 2}\n"
								   "{\"step\": 7, \"b\": 3}\n{\"step\": 9, \"b\": 4}\n"
								   "{\"step\": 0, \"a\": 5}\n{\"step\": 5, \"a\": 6}\n");
	const uint64_t steps[] = { 0, 5, 7, 9 };
	const double a[] = { 5, 6, NAN, 2 }, b[] = { NAN, NAN, 3, 4 };
	assert_int_equal(table.count, 4);
	assert_memory_equal(table.steps, steps, sizeof steps);
	for (size_t row = 0; row < 4; row++) {
		cell(&table, row, "a", a[row]);
		cell(&table, row, "b", b[row]);
	}
	run_table_clear(&table);
}

static void the_first_bad_line_is_told_and_passed_over(void **state)
{
	static const struct {
		const char *text;
		size_t bad, rows;
	} cases[] = {
		{ "", 0, 0 },
		{ "{\"step\": 1}\nrubbish\n{\"step\": \"6\"}\n{\"step\": 2}\n", 2, 2 },
		{ "{\"step\": 1}\n{\"step\": -1}\n{\"step\": 2}\n", 2, 2 },
		{ "[1]\n{\"step\": 2}\n", 1, 1 },
		{ "{\"step\": 1}\n{\"step\": 2, \"lo", 0, 1 },
		{ "{\"step\": 1}\nrubbish\n", 0, 1 },
		{ "{\"other\": 1}\n{\"step\": 1}\n", 0, 1 },
	};
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct run_table table = parse(cases[i].text);
		if (table.bad_line != cases[i].bad || table.count != cases[i].rows)
			fail_msg("%s: line %zu, %zu rows", cases[i].text, table.bad_line, table.count);
		run_table_clear(&table);
	}
}

/* A line of 100 keys, among which are one that is too long and an object. */
static void keys_beyond_the_limits_are_left_out(void **state)
{
	char text[4000] = "{\"step\": 3, \"a-key-that-is-longer-than-any-that-a-table-keeps-ever\": 1, "
					  "\"o\": {\"a-member-that-is-longer-than-a-name-in-a-table\": 1}";
	(void)state;
	for (int i = 0; i < 98; i++)
		sprintf(text + strlen(text), ", \"key%d\": %d", i, i);
	strcat(text, "}\n");
	struct run_table table = parse(text);
	assert_int_equal(table.width, RUN_TABLE_COLUMNS);
	cell(&table, 0, "key0", 0);
	cell(&table, 0, "key63", 63);
	cell(&table, 0, "key64", NAN);
	run_table_clear(&table);
}

static void rows_done_again_replace_those_before(void **state)
{
	struct err err;
	struct run_table first = parse("{\"step\": 1, \"loss_bits\": \"00000001\"}\n"
								   "{\"step\": 2, \"loss_bits\": \"00000002\"}\n"
								   "{\"step\": 2, \"validation_loss_bits\": \"00000012\"}\n"
								   "{\"step\": 3, \"loss_bits\": \"00000003\", \"extra\": 1}\n"
								   "{\"step\": 4, \"loss_bits\": \"00000004\"}\n");
	/* It resumes at step 2, does its validation again, and says late that step 2 was saved. */
	struct run_table second = parse("{\"step\": 2, \"validation_loss_bits\": \"00000022\"}\n"
									"{\"step\": 3, \"loss_bits\": \"00000013\"}\n"
									"{\"step\": 2, \"checkpoint\": {\"stall\": 0.5}}\n");
	struct run_table curve = { 0 };
	(void)state;
	assert_int_equal(run_table_merge(&curve, &first, &err), 0);
	assert_int_equal(run_table_merge(&curve, &second, &err), 0);
	assert_int_equal(curve.count, 3);
	cell(&curve, 1, "loss_bits", 2);
	cell(&curve, 1, "validation_loss_bits", 0x22);
	cell(&curve, 1, "checkpoint.stall", 0.5);
	cell(&curve, 2, "loss_bits", 0x13);
	cell(&curve, 2, "extra", NAN);
	run_table_clear(&first);
	run_table_clear(&second);
	run_table_clear(&curve);
}

/* An attempt repeats the text of the step at which it resumes. */
static void texts_done_again_replace_those_before(void **state)
{
	struct err err;
	struct run_table first = parse("{\"step\": 10, \"sample\": \"a\"}\n"
								   "{\"step\": 20, \"sample\": \"b\"}\n"
								   "{\"step\": 30, \"sample\": 3}\n"
								   "{\"step\": 30, \"sample\": \"c\"}\n");
	struct run_table second = parse("{\"step\": 20, \"sample\": \"B\"}\n"
									"{\"step\": 25, \"sample\": \"d\"}\n");
	struct run_table none = parse(""), curve = { 0 };
	(void)state;
	assert_int_equal(first.count, 0);
	assert_int_equal(run_table_merge(&curve, &first, &err), 0);
	assert_int_equal(run_table_merge(&curve, &none, &err), 0);
	assert_samples(&curve, "[[10,\"a\"],[20,\"b\"],[30,\"c\"]]");
	assert_int_equal(run_table_merge(&curve, &second, &err), 0);
	assert_samples(&curve, "[[10,\"a\"],[20,\"B\"],[25,\"d\"]]");
	run_table_clear(&first);
	run_table_clear(&second);
	run_table_clear(&none);
	run_table_clear(&curve);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(values_of_all_kinds_become_cells),
		cmocka_unit_test(rows_are_in_the_order_of_steps),
		cmocka_unit_test(the_first_bad_line_is_told_and_passed_over),
		cmocka_unit_test(keys_beyond_the_limits_are_left_out),
		cmocka_unit_test(rows_done_again_replace_those_before),
		cmocka_unit_test(texts_done_again_replace_those_before),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
