/* SPDX-License-Identifier: Apache-2.0 */
/* muster-ckpt history: the attempts of a run as a table, so that a user sees what ended each and
 * how much was computed again. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "checkpoint/command/ckpt_cmd.h"
#include "checkpoint/command/ckpt_words.h"
#include "common/record.h"
#include "common/progress.h"
#include "runs/run.h"

static const struct argp_option option_rows[] = {
	CKPT_WORDS_JSON,
	{ 0 },
};

static const struct argp argp = { .options = option_rows,
	.parser = ckpt_words_parse,
	.args_doc = "DIR",
	.doc = "Lists the attempts of the run in DIR: where and from which step each ran, what ended "
		   "it, and how many seconds of it the next one had to do again." };

static void add_seconds(struct ckpt_table *table, double seconds)
{
	if (isnan(seconds))
		ckpt_table_add(table, "-");
	else
		ckpt_table_add(table, "%.1f", seconds);
}

static void add_step(struct ckpt_table *table, int64_t step, const char *none)
{
	if (step < 0)
		ckpt_table_add(table, "%s", none);
	else
		ckpt_table_add(table, "%" PRId64, step);
}

static void add_row(struct ckpt_table *table, const struct history_row *row)
{
	char time[32];
	if (row->job)
		ckpt_table_add(table, "%" PRIu32 ".%d", row->job, row->attempt);
	else
		ckpt_table_add(table, "%d", row->number);
	ckpt_table_add(table, "%s", ckpt_cmd_time(row->began, time));
	ckpt_table_add(table, "%s", row->nodes);
	ckpt_table_add(table, "%d", row->world_size);
	add_step(table, row->from, "fresh");
	add_step(table, row->last, "-");
	ckpt_table_add(table, "%s", history_end_name(row->end));
	ckpt_table_add(table, "%s", row->notice[0] ? row->notice : "-");
	add_seconds(table, row->seconds);
	add_seconds(table, row->lost);
	ckpt_table_add(table, "%s", row->why[0] ? row->why : "-");
}

static int print_text(const struct run *run)
{
	static const char *const titles[] = { "attempt", "began", "nodes", "ranks", "from", "last",
		"end", "notice", "seconds", "lost", "why" };
	const int columns = (int)(sizeof titles / sizeof titles[0]);
	struct ckpt_table table = { .columns = columns, .right = 0x338 };
	for (int i = 0; i < columns; i++)
		ckpt_table_add(&table, "%s", titles[i]);
	for (size_t r = 0; r < run->attempts; r++)
		add_row(&table, &run->rows[r]);
	ckpt_table_print(&table);
	ckpt_table_clear(&table);
	const struct history_sum sum = history_sum(run->rows, run->attempts);
	printf("%zu attempt%s, %zu interruption%s", sum.attempts, sum.attempts == 1 ? "" : "s",
		sum.interruptions, sum.interruptions == 1 ? "" : "s");
	if (sum.interruptions)
		printf(", one in %.1f s of training on average", sum.mean_between);
	printf("; ran %.1f s, of which %.1f s were done again, and waited %.1f s\n", sum.seconds,
		sum.lost, sum.waited);
	const int status = ckpt_cmd_flush();
	progress_next("muster-report %s", run->dir.path);
	return status;
}

static json_t *row_json(const struct history_row *row)
{
	return json_pack("{s:i, s:I, s:i, s:f, s:s, s:i, s:I, s:o, s:s, s:s, s:s, s:o, s:o, s:o}",
		"number", row->number, "job", (json_int_t)row->job, "attempt", row->attempt, "began",
		row->began, "nodes", row->nodes, "world_size", row->world_size, "from",
		(json_int_t)row->from, "last", row->last < 0 ? json_null() : json_integer(row->last), "end",
		history_end_name(row->end), "why", row->why, "notice", row->notice, "seconds",
		ckpt_cmd_number(row->seconds), "seconds_lost", ckpt_cmd_number(row->lost), "seconds_waited",
		ckpt_cmd_number(row->waited));
}

static int print_json(const struct run *run)
{
	const struct history_sum sum = history_sum(run->rows, run->attempts);
	json_t *rows = json_array();
	for (size_t r = 0; r < run->attempts; r++)
		rows = record_append(rows, row_json(&run->rows[r]));
	return ckpt_cmd_print_json(json_pack("{s:s, s:o, s:I, s:o, s:f, s:f, s:f}", "directory",
		run->dir.path, "attempts", rows, "interruptions", (json_int_t)sum.interruptions,
		"mean_seconds_between", ckpt_cmd_number(sum.mean_between), "seconds", sum.seconds,
		"seconds_lost", sum.lost, "seconds_waited", sum.waited));
}

int ckpt_cmd_history(int argc, char **argv)
{
	struct ckpt_words words = { .least = 1, .most = 1, .what = "the checkpoint directory" };
	struct run run;
	struct err err;
	argp_parse(&argp, argc, argv, 0, NULL, &words);
	int status;
	if (run_read(words.word[0], &run, &err) < 0)
		status = ckpt_cmd_fail(&err);
	else
		status = words.json ? print_json(&run) : print_text(&run);
	run_close(&run);
	return status;
}
