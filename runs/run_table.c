/* SPDX-License-Identifier: Apache-2.0 */
/* Reads metrics into columns. Almost always a line belongs to the newest row or to a new one behind
 * it. */
#include "config.h"

#include "runs/run_table.h"

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/record.h"
#include "common/auto.h"
#include "common/clock.h"
#include "common/io.h"

#define FILE_LIMIT ((size_t)4 << 30)

/* ---- rows and columns ---- */

static int grow(struct run_table *table)
{
	const size_t room = table->room ? table->room * 2 : 256;
	uint64_t *steps = realloc(table->steps, room * sizeof *steps);
	if (!steps)
		return -1;
	table->steps = steps;
	for (int c = 0; c < table->width; c++) {
		double *values = realloc(table->columns[c].values, room * sizeof *values);
		if (!values)
			return -1;
		table->columns[c].values = values;
	}
	table->room = room;
	return 0;
}

/* Puts an empty row at `at`, before the rows that are there. */
static int insert_row(struct run_table *table, size_t at, uint64_t step)
{
	if (table->count == table->room && grow(table) < 0)
		return -1;
	const size_t behind = table->count - at;
	memmove(&table->steps[at + 1], &table->steps[at], behind * sizeof *table->steps);
	table->steps[at] = step;
	for (int c = 0; c < table->width; c++) {
		double *values = table->columns[c].values;
		memmove(&values[at + 1], &values[at], behind * sizeof *values);
		values[at] = NAN;
	}
	table->count++;
	return 0;
}

/* Finds the row of a step, or makes it. */
static int row_of(struct run_table *table, uint64_t step, size_t *row)
{
	size_t at = table->count;
	while (at > 0 && table->steps[at - 1] > step)
		at--;
	if (at > 0 && table->steps[at - 1] == step) {
		*row = at - 1;
		return 0;
	}
	*row = at;
	return insert_row(table, at, step);
}

static int find_column(const struct run_table *table, const char *name)
{
	for (int c = 0; c < table->width; c++)
		if (strcmp(table->columns[c].name, name) == 0)
			return c;
	return -1;
}

static int add_column(struct run_table *table, const char *name)
{
	struct run_column *column = &table->columns[table->width];
	column->values = malloc(table->room * sizeof *column->values);
	if (!column->values)
		return -1;
	for (size_t row = 0; row < table->count; row++)
		column->values[row] = NAN;
	snprintf(column->name, sizeof column->name, "%s", name);
	return table->width++;
}

static int put(struct run_table *table, size_t row, const char *name, double value)
{
	int column = find_column(table, name);
	if (column < 0 && (table->width == RUN_TABLE_COLUMNS || strlen(name) >= RUN_TABLE_NAME_SIZE))
		return 0;
	if (column < 0)
		column = add_column(table, name);
	if (column < 0)
		return -1;
	table->columns[column].values[row] = value;
	return 0;
}

const double *run_table_column(const struct run_table *table, const char *name)
{
	const int column = find_column(table, name);
	return column < 0 ? NULL : table->columns[column].values;
}

double run_table_value(const struct run_table *table, const char *name, size_t row)
{
	const double *values = run_table_column(table, name);
	return values ? values[row] : NAN;
}

void run_table_clear(struct run_table *table)
{
	for (int c = 0; c < table->width; c++)
		free(table->columns[c].values);
	free(table->steps);
	json_decref(table->samples);
	*table = (struct run_table) { 0 };
}

static int compare_doubles(const void *a, const void *b)
{
	return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

double run_table_median(double *values, size_t count)
{
	if (count == 0)
		return NAN;
	qsort(values, count, sizeof *values, compare_doubles);
	return (values[(count - 1) / 2] + values[count / 2]) / 2;
}

/* ---- sample texts ---- */

static uint64_t sample_step(const struct run_table *table, size_t index)
{
	return (uint64_t)json_integer_value(json_array_get(json_array_get(table->samples, index), 0));
}

static void drop_samples(struct run_table *table, uint64_t from)
{
	for (size_t count;
		 (count = json_array_size(table->samples)) > 0 && sample_step(table, count - 1) >= from;)
		json_array_remove(table->samples, count - 1);
}

/* The text takes the place of those of its step and of later ones, which are done again. */
static int put_sample(struct run_table *table, uint64_t step, json_t *text)
{
	if (!json_is_string(text))
		return 0;
	if (!table->samples && !(table->samples = json_array()))
		return -1;
	drop_samples(table, step);
	return json_array_append_new(table->samples, json_pack("[I, O]", (json_int_t)step, text));
}

static int merge_samples(struct run_table *into, const struct run_table *from)
{
	size_t i;
	json_t *sample;
	json_array_foreach(from->samples, i, sample)
	{
		if (put_sample(into, sample_step(from, i), json_array_get(sample, 1)) < 0)
			return -1;
	}
	return 0;
}

/* ---- lines ---- */

bool run_table_is_bits(const char *name)
{
	const size_t length = strlen(name);
	return length > 5 && strcmp(name + length - 5, "_bits") == 0;
}

/* The number that a value stands for; NAN: none. */
static double number_of(const char *key, const json_t *value)
{
	const char *text = json_string_value(value);
	char *end;
	if (json_is_number(value))
		return json_number_value(value);
	if (json_is_boolean(value))
		return json_is_true(value);
	if (!text || !run_table_is_bits(key) || strlen(text) != 8)
		return NAN;
	const unsigned long bits = strtoul(text, &end, 16);
	return *end ? NAN : (double)bits;
}

static int put_object(struct run_table *table, size_t row, const char *key, json_t *object)
{
	char name[RUN_TABLE_NAME_SIZE];
	const char *member;
	json_t *value;
	json_object_foreach(object, member, value)
	{
		const int length = snprintf(name, sizeof name, "%s.%s", key, member);
		if (length < (int)sizeof name && json_is_number(value)
			&& put(table, row, name, json_number_value(value)) < 0)
			return -1;
	}
	return 0;
}

/* What the time of a line is the time of. */
static const char *time_name(const json_t *line)
{
	return json_object_get(line, "checkpoint")          ? "checkpoint.time"
		: json_object_get(line, "validation_loss_bits") ? "validation_time"
														: "time";
}

static int put_members(struct run_table *table, size_t row, json_t *line)
{
	const char *key;
	json_t *value;
	json_object_foreach(line, key, value)
	{
		const double number = number_of(key, value);
		if (json_is_object(value)
				? put_object(table, row, key, value) < 0
				: !isnan(number) && strcmp(key, "step") != 0 && put(table, row, key, number) < 0)
			return -1;
	}
	const double time = clock_from_iso8601(json_string_value(json_object_get(line, "time")));
	if (time <= 0)
		return 0;
	table->time = time;
	return put(table, row, time_name(line), time);
}

enum verdict { TAKEN, BAD, NO_MEMORY };

static enum verdict take_line(struct run_table *table, json_t *line)
{
	const json_t *step = json_object_get(line, "step");
	json_t *text = json_object_get(line, "sample");
	size_t row;
	if (json_is_object(line) && !step)
		return TAKEN; /* of a kind that a later version writes */
	if (!json_is_integer(step) || json_integer_value(step) < 0)
		return BAD;
	if (text) /* no row */
		return put_sample(table, (uint64_t)json_integer_value(step), text) < 0 ? NO_MEMORY : TAKEN;
	if (row_of(table, (uint64_t)json_integer_value(step), &row) < 0
		|| put_members(table, row, line) < 0)
		return NO_MEMORY;
	return TAKEN;
}

int run_table_parse(const char *text, size_t size, struct run_table *table, struct err *err)
{
	size_t number = 0;
	*table = (struct run_table) { 0 };
	for (const char *line = text, *end; (end = memchr(line, '\n', size - (size_t)(line - text)));
		 line = end + 1) {
		number++;
		struct err why = { 0 };
		json_t *json = record_parse(line, (size_t)(end - line), 0, "a line", &why);
		const enum verdict unread = why.status == EXIT_LOST ? NO_MEMORY : BAD,
						   verdict = json ? take_line(table, json) : unread;
		json_decref(json);
		if (verdict == NO_MEMORY)
			return err_set(err, "metrics: out of memory");
		/* A crash of the machine may leave a last line of zeros that even ends in a newline. */
		if (verdict == BAD && !table->bad_line && end + 1 < text + size)
			table->bad_line = number;
	}
	return 0;
}

/* ---- files ---- */

int run_table_read(int dirfd, int attempt, struct run_table *table, struct err *err)
{
	off_t read = 0;
	return run_table_read_more(dirfd, attempt, &read, table, err);
}

int run_table_read_more(int dirfd, int attempt, off_t *read, struct run_table *table,
	struct err *err)
{
	AUTO_FREE char *text = NULL;
	size_t size;
	char name[64];
	*table = (struct run_table) { 0 };
	snprintf(name, sizeof name, "metrics-%d.jsonl", attempt);
	if (io_read_rest(dirfd, name, *read, FILE_LIMIT, &text, &size, err) < 0
		|| run_table_parse(text, size, table, err) < 0)
		return -1;
	const char *last = memrchr(text, '\n', size);
	*read += last ? last + 1 - text : 0;
	return 0;
}

static int compare_ints(const void *a, const void *b)
{
	return (*(const int *)a > *(const int *)b) - (*(const int *)a < *(const int *)b);
}

static int list(DIR *dir, int **attempts, size_t *count)
{
	for (struct dirent *entry; errno = 0, (entry = readdir(dir));) {
		int attempt, used = 0;
		if (sscanf(entry->d_name, "metrics-%9d.jsonl%n", &attempt, &used) != 1 || !used
			|| entry->d_name[used])
			continue;
		int *grown = realloc(*attempts, (*count + 1) * sizeof **attempts);
		if (!grown)
			return -1;
		*attempts = grown;
		(*attempts)[(*count)++] = attempt;
	}
	return errno ? -1 : 0;
}

int run_table_list(int dirfd, int **attempts, size_t *count, struct err *err)
{
	DIR *dir = io_open_list(dirfd);
	*attempts = NULL;
	*count = 0;
	if (!dir)
		return err_fail(err, io_status_or(errno, EXIT_DATA),
			"metrics: couldn't list the folder: %m");
	const int rc = list(dir, attempts, count), why = errno;
	closedir(dir);
	if (rc < 0) {
		free(*attempts);
		*attempts = NULL;
		return err_fail(err, io_status(why), "metrics: couldn't list the folder: %s",
			strerror(why));
	}
	if (*count)
		qsort(*attempts, *count, sizeof **attempts, compare_ints);
	return 0;
}

/* ---- several attempts ---- */

/* Drops the rows and texts that an attempt does again. The validation of the step before stays. */
static void drop_redone(struct run_table *into, const struct run_table *from)
{
	const double *loss = run_table_column(from, "loss_bits");
	size_t first = 0;
	while (loss && first < from->count && isnan(loss[first]))
		first++;
	if (!loss || first == from->count)
		return;
	while (into->count > 0 && into->steps[into->count - 1] >= from->steps[first])
		into->count--;
	drop_samples(into, from->steps[first]);
}

int run_table_merge(struct run_table *into, const struct run_table *from, struct err *err)
{
	drop_redone(into, from);
	if (merge_samples(into, from) < 0)
		return err_set(err, "metrics: out of memory");
	for (size_t i = 0; i < from->count; i++) {
		size_t row;
		if (row_of(into, from->steps[i], &row) < 0)
			return err_set(err, "metrics: out of memory");
		for (int c = 0; c < from->width; c++)
			if (!isnan(from->columns[c].values[i])
				&& put(into, row, from->columns[c].name, from->columns[c].values[i]) < 0)
				return err_set(err, "metrics: out of memory");
	}
	if (from->time > into->time)
		into->time = from->time;
	return 0;
}
