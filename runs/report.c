/* SPDX-License-Identifier: Apache-2.0 */
/* Collects what the page of a report draws. The reader is runs/page/report.js. */
#include "config.h"

#include "runs/report.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/record.h"
#include "common/auto.h"
#include "common/bytes.h"
#include "common/clock.h"

#define STRETCHES (REPORT_POINTS / 2)

static json_t *number(double value)
{
	return isfinite(value) ? json_real(value) : json_null();
}

/* ---- series ---- */

struct series {
	const uint64_t *steps;
	const double *times, *values; /* times may be NULL */
	size_t count;
	double began;
};

static void add_point(json_t **points, const struct series *series, size_t row)
{
	const double time = series->times ? series->times[row] - series->began : NAN;
	*points = record_append(*points,
		json_pack("[I, o, o]", (json_int_t)series->steps[row], number(time),
			number(series->values[row])));
}

/* Adds the rows of the least and the greatest value among rows [from, to), in their order. */
static void add_stretch(json_t **points, const struct series *series, const size_t *rows,
	size_t from, size_t to)
{
	size_t least = from, greatest = from;
	for (size_t i = from; i < to; i++) {
		least = series->values[rows[i]] < series->values[rows[least]] ? i : least;
		greatest = series->values[rows[i]] > series->values[rows[greatest]] ? i : greatest;
	}
	const size_t first = least < greatest ? least : greatest;
	const size_t last = least < greatest ? greatest : least;
	add_point(points, series, rows[first]);
	if (last != first)
		add_point(points, series, rows[last]);
}

/* The finite values; the last one always is among the points, since it is what people look for. */
static json_t *points_of(const struct series *series)
{
	AUTO_FREE size_t *rows = malloc((series->count + 1) * sizeof *rows);
	size_t count = 0;
	if (!rows)
		return NULL;
	json_t *points = json_array();
	for (size_t row = 0; row < series->count; row++)
		if (isfinite(series->values[row]))
			rows[count++] = row;
	if (count <= REPORT_POINTS) {
		for (size_t i = 0; i < count; i++)
			add_point(&points, series, rows[i]);
		return points;
	}
	for (size_t s = 0; s + 1 < STRETCHES; s++)
		add_stretch(&points, series, rows, s * (count - 1) / (STRETCHES - 1),
			(s + 1) * (count - 1) / (STRETCHES - 1));
	add_point(&points, series, rows[count - 1]);
	return points;
}

/* What is no number of the training: bits, times, and what other parts of the report show. */
static bool is_plotted(const char *name)
{
	static const char *const left_out[] = { "time", "validation_time", "ranks", "uneven",
		"sent_bytes", "ring_bytes", "skipped" };
	for (size_t i = 0; i < sizeof left_out / sizeof left_out[0]; i++)
		if (strcmp(name, left_out[i]) == 0)
			return false;
	return strncmp(name, "checkpoint.", 11) != 0 && !run_table_is_bits(name);
}

static json_t *series_json(const struct run *run)
{
	const struct run_table *curve = &run->curve;
	json_t *object = json_object();
	for (int c = 0; c < curve->width; c++) {
		const char *name = curve->columns[c].name;
		const bool validation = strcmp(name, "validation_loss") == 0;
		const struct series series = { .steps = curve->steps,
			.times = run_table_column(curve, validation ? "validation_time" : "time"),
			.values = curve->columns[c].values,
			.count = curve->count,
			.began = run->rows[0].began };
		if (is_plotted(name))
			object = record_set(object, name, points_of(&series));
	}
	return object;
}

/* Of many sample texts every n-th, and the last one. */
static json_t *samples_json(const struct run_table *curve)
{
	const size_t count = json_array_size(curve->samples);
	const size_t apart = (count + REPORT_SAMPLES - 1) / REPORT_SAMPLES;
	json_t *samples = json_array();
	for (size_t i = 0; i < count; i++)
		if ((count - 1 - i) % apart == 0)
			samples = record_append(samples, json_incref(json_array_get(curve->samples, i)));
	return samples;
}

/* ---- attempts ---- */

static json_t *saves_json(const struct run *run, size_t n)
{
	const struct run_table *table = &run->tables[n];
	json_t *saves = json_array();
	for (size_t row = 0; row < table->count; row++) {
		const double stall = run_table_value(table, "checkpoint.stall", row);
		const double time = run_table_value(table, "checkpoint.time", row);
		if (isnan(stall) || isnan(time))
			continue;
		saves = record_append(saves,
			json_pack("{s:I, s:f, s:f, s:o, s:o}", "step", (json_int_t)table->steps[row], "at",
				time - run->rows[0].began, "stall", stall, "flush",
				number(run_table_value(table, "checkpoint.flush", row)), "bytes",
				number(run_table_value(table, "checkpoint.bytes", row))));
	}
	return saves;
}

static json_t *notices_json(const struct history_row *row, double began)
{
	json_t *notices = json_array();
	if (!isnan(row->noticed))
		notices = record_append(notices,
			json_pack("{s:f, s:s}", "at", row->noticed - began, "why", row->notice));
	return notices;
}

static json_t *attempt_json(const struct run *run, size_t n)
{
	const struct history_row *row = &run->rows[n];
	return json_pack(
		"{s:i, s:I, s:i, s:f, s:s, s:s, s:s, s:i, s:I, s:I, s:s, s:s, s:o, s:o, s:o, s:o, s:o, "
		"s:o, s:o, s:o}",
		"number", row->number, "job", (json_int_t)row->job, "attempt", row->attempt, "began",
		row->began, "nodes", row->nodes, "machine", row->machine, "version", row->version, "ranks",
		row->world_size, "from", (json_int_t)row->from, "last", (json_int_t)row->last, "end",
		history_end_name(row->end), "why", row->why, "seconds", number(row->seconds), "lost",
		number(row->lost), "waited", number(row->waited), "queued", number(row->queued), "starting",
		number(run_starting(run, n)), "saving", number(run_saving(run, n)), "saves",
		saves_json(run, n), "notices", notices_json(row, run->rows[0].began));
}

/* ---- a run ---- */

static json_t *median(const struct run_table *table, const char *name)
{
	const double *values = run_table_column(table, name);
	AUTO_FREE double *sorted = malloc((table->count + 1) * sizeof *sorted);
	size_t count = 0;
	for (size_t row = 0; sorted && values && row < table->count; row++)
		if (isfinite(values[row]))
			sorted[count++] = values[row];
	return number(sorted ? run_table_median(sorted, count) : NAN);
}

static json_t *time_json(const struct run *run)
{
	const struct run_time time = run_time(run);
	return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:o}", "wall", time.wall, "training",
		time.training, "redone", time.redone, "queued", time.queued, "waiting", time.waiting,
		"starting", time.starting, "saving", time.saving, "other", time.other, "goodput",
		number(time.goodput));
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash && slash[1] ? slash + 1 : path;
}

/* The last component of its path, or all of it where another run has the same. */
static const char *name_of(const struct run *runs, size_t count, size_t i)
{
	const char *name = base_name(runs[i].dir.path);
	for (size_t k = 0; k < count; k++)
		if (k != i && strcmp(name, base_name(runs[k].dir.path)) == 0)
			return runs[i].dir.path;
	return name;
}

static int64_t steps_of(const struct run *run)
{
	int64_t steps = 0;
	for (size_t n = 0; n < run->attempts; n++)
		steps = run->rows[n].last > steps ? run->rows[n].last : steps;
	return steps;
}

static json_t *run_json(const struct run *runs, size_t count, size_t i)
{
	const struct run *run = &runs[i];
	json_t *attempts = json_array();
	for (size_t n = 0; n < run->attempts; n++)
		attempts = record_append(attempts, attempt_json(run, n));
	return json_pack("{s:s, s:s, s:f, s:I, s:o, s:{s:o, s:o, s:o}, s:o, s:o, s:o, s:O?, s:O?}",
		"name", name_of(runs, count, i), "path", run->dir.path, "began", run->rows[0].began,
		"steps", (json_int_t)steps_of(run), "time", time_json(run), "medians", "tokens_per_second",
		median(&run->curve, "tokens_per_second"), "milliseconds",
		median(&run->curve, "milliseconds"), "mfu", median(&run->curve, "mfu"), "attempts",
		attempts, "series", series_json(run), "samples", samples_json(&run->curve), "config",
		run->config, "numerics", run->numerics);
}

/* ---- several runs ---- */

/* The difference of two losses, from their bits; NAN where one has none. */
static double difference(double bits, double first_bits)
{
	return isnan(bits) || isnan(first_bits)
		? NAN
		: (double)bytes_to_float((uint32_t)bits) - (double)bytes_to_float((uint32_t)first_bits);
}

/* Compares run i with the first, and adds the differences to its series. */
static json_t *compare_runs(const struct run *runs, size_t i, json_t *series)
{
	const struct run_table *a = &runs[0].curve, *b = &runs[i].curve;
	AUTO_FREE double *values = malloc((b->count + 1) * sizeof *values);
	size_t steps = 0, equal = 0;
	double largest = 0;
	int64_t first = -1;
	if (!values)
		return NULL;
	for (size_t row = 0, other = 0; row < b->count; row++) {
		while (other < a->count && a->steps[other] < b->steps[row])
			other++;
		const bool common = other < a->count && a->steps[other] == b->steps[row];
		const double bits = run_table_value(b, "loss_bits", row);
		const double first_bits = common ? run_table_value(a, "loss_bits", other) : NAN;
		values[row] = difference(bits, first_bits);
		if (isnan(bits) || isnan(first_bits))
			continue;
		steps++;
		equal += bits == first_bits;
		first = bits != first_bits && first < 0 ? (int64_t)b->steps[row] : first;
		largest = fmax(largest, fabs(values[row]));
	}
	const struct series points = { .steps = b->steps,
		.times = run_table_column(b, "time"),
		.values = values,
		.count = b->count,
		.began = runs[i].rows[0].began };
	if (json_object_set_new(series, "loss_difference", points_of(&points)) < 0)
		return NULL;
	return json_pack("{s:I, s:I, s:I, s:I, s:o}", "run", (json_int_t)i, "steps", (json_int_t)steps,
		"equal", (json_int_t)equal, "first", (json_int_t)first, "largest", number(largest));
}

json_t *report_json(const struct run *runs, size_t count, const char *title)
{
	json_t *list = json_array(), *differences = json_array();
	for (size_t i = 0; i < count; i++) {
		json_t *run = run_json(runs, count, i);
		if (i > 0)
			differences =
				record_append(differences, compare_runs(runs, i, json_object_get(run, "series")));
		list = record_append(list, run);
	}
	return json_pack("{s:s, s:f, s:s, s:o, s:o}", "title", title, "made", clock_wall(), "version",
		PACKAGE_VERSION, "runs", list, "differences", differences);
}
