/* SPDX-License-Identifier: Apache-2.0 */
/* muster-ckpt history: the attempts of a run as a table, so that a user sees what ended each and
 * how much was computed again. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "checkpoint/command/ckpt_cmd.h"
#include "checkpoint/command/ckpt_words.h"
#include "checkpoint/directory/history.h"
#include "checkpoint/directory/owner.h"
#include "common/auto.h"
#include "common/clock.h"
#include "common/io.h"

#define METRICS_LIMIT ((size_t)4 << 30)

static const struct argp_option option_rows[] = {
	CKPT_WORDS_JSON,
	{ 0 },
};

static const struct argp argp = { .options = option_rows,
	.parser = ckpt_words_parse,
	.args_doc = "DIR",
	.doc = "Lists the attempts of the run in DIR: where and from which step each ran, what ended "
		   "it, and how many seconds of it the next one had to do again." };

struct history {
	struct attempts_record *records;
	size_t record_count;
	struct history_steps *steps;
	struct history_row *rows;
	size_t count;
};

/* An attempt without a metrics file has no known steps; that is no error. */
static int read_steps(const struct ckpt_dir *dir, size_t number, struct history_steps *steps,
	struct err *err)
{
	char name[64];
	AUTO_FREE char *text = NULL;
	size_t size;
	*steps = (struct history_steps) { .last = -1, .from = -1 };
	snprintf(name, sizeof name, "metrics-%zu.jsonl", number);
	if (io_read_file(dir->fd, name, METRICS_LIMIT, &text, &size, err) < 0)
		return err->status == EXIT_LOST ? err_prefix(err, "history") : 0;
	return history_steps_parse(text, size, steps) < 0 ? err_set(err, "history: no memory") : 0;
}

static int read_history(const struct ckpt_dir *dir, struct history *history, struct err *err)
{
	size_t starts = 0;
	if (attempts_read(dir, &history->records, &history->record_count, err) < 0)
		return -1;
	for (size_t i = 0; i < history->record_count; i++)
		starts += history->records[i].event == ATTEMPTS_START;
	if (starts == 0)
		return err_fail(err, EXIT_USAGE,
			"history: %s has no record of an attempt: give the directory of a training", dir->path);
	history->steps = calloc(starts, sizeof *history->steps);
	history->rows = calloc(starts, sizeof *history->rows);
	if (!history->steps || !history->rows)
		return err_set(err, "history: no memory");
	history->count = starts;
	for (size_t n = 0; n < starts; n++)
		if (read_steps(dir, n, &history->steps[n], err) < 0)
			return -1;
	history_rows(history->records, history->record_count, history->steps, owner_beats(dir),
		clock_wall(), history->rows);
	return 0;
}

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

static int print_text(const struct history *history)
{
	static const char *const titles[] = { "attempt", "began", "nodes", "ranks", "from", "last",
		"end", "notice", "seconds", "lost", "why" };
	const int columns = (int)(sizeof titles / sizeof titles[0]);
	struct ckpt_table table = { .columns = columns, .right = 0x338 };
	for (int i = 0; i < columns; i++)
		ckpt_table_add(&table, "%s", titles[i]);
	for (size_t r = 0; r < history->count; r++)
		add_row(&table, &history->rows[r]);
	int status = ckpt_table_print(&table);
	ckpt_table_clear(&table);
	const struct history_sum sum = history_sum(history->rows, history->count);
	printf("%zu attempt%s, %zu interruption%s", sum.attempts, sum.attempts == 1 ? "" : "s",
		sum.interruptions, sum.interruptions == 1 ? "" : "s");
	if (sum.interruptions)
		printf(", one in %.1f s of training on average", sum.mean_between);
	printf("; ran %.1f s, of which %.1f s were done again, and waited %.1f s\n", sum.seconds,
		sum.lost, sum.waited);
	return status == EXIT_OK ? ckpt_cmd_flush() : status;
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

static int print_json(const struct ckpt_dir *dir, const struct history *history)
{
	const struct history_sum sum = history_sum(history->rows, history->count);
	json_t *rows = json_array();
	for (size_t r = 0; r < history->count; r++)
		json_array_append_new(rows, row_json(&history->rows[r]));
	return ckpt_cmd_print_json(json_pack("{s:s, s:o, s:I, s:o, s:f, s:f, s:f}", "directory",
		dir->path, "attempts", rows, "interruptions", (json_int_t)sum.interruptions,
		"mean_seconds_between", ckpt_cmd_number(sum.mean_between), "seconds", sum.seconds,
		"seconds_lost", sum.lost, "seconds_waited", sum.waited));
}

int ckpt_cmd_history(int argc, char **argv)
{
	struct ckpt_words words = { .least = 1, .most = 1, .what = "the checkpoint directory" };
	struct history history = { 0 };
	struct ckpt_dir dir;
	struct err err;
	argp_parse(&argp, argc, argv, 0, NULL, &words);
	int status;
	if (ckpt_dir_open_existing(&dir, words.word[0], &err) < 0
		|| read_history(&dir, &history, &err) < 0)
		status = ckpt_cmd_fail(&err);
	else
		status = words.json ? print_json(&dir, &history) : print_text(&history);
	ckpt_dir_close(&dir);
	for (size_t n = 0; n < history.count; n++)
		history_steps_clear(&history.steps[n]);
	free(history.records);
	free(history.steps);
	free(history.rows);
	return status;
}
