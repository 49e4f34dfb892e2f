/* SPDX-License-Identifier: Apache-2.0 */
/* Joins what a run has logged with what its ranks do now. */
#include "config.h"

#include "top/view.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/bytes.h"
#include "common/clock.h"

#define NEWEST_STEPS 50 /* the steps of which the rates are */

/* ---- figures ---- */

/* The newest value of a column of bits; NAN: none. */
static double newest(const struct run_table *table, const char *name, int64_t *step)
{
	const double *bits = run_table_column(table, name);
	for (size_t row = table->count; bits && row-- > 0;) {
		if (isnan(bits[row]))
			continue;
		*step = (int64_t)table->steps[row];
		return (double)bytes_to_float((uint32_t)bits[row]);
	}
	return NAN;
}

/* The first of the newest rows. */
static size_t first_of(const struct run_table *table)
{
	return table->count > NEWEST_STEPS ? table->count - NEWEST_STEPS : 0;
}

/* The mean of a column over the newest steps, by the time that they took. */
static double mean(const struct run_table *table, const char *name)
{
	const double *values = run_table_column(table, name);
	const double *milliseconds = run_table_column(table, "milliseconds");
	double sum = 0, weight = 0;
	for (size_t row = first_of(table); values && milliseconds && row < table->count; row++) {
		if (isnan(values[row]) || isnan(milliseconds[row]))
			continue;
		sum += values[row] * milliseconds[row];
		weight += milliseconds[row];
	}
	return weight > 0 ? sum / weight : NAN;
}

static double sum(const struct run_table *table, const char *name, size_t *count)
{
	const double *values = run_table_column(table, name);
	double total = 0;
	*count = 0;
	for (size_t row = first_of(table); values && row < table->count; row++) {
		if (isnan(values[row]))
			continue;
		total += values[row];
		++*count;
	}
	return total;
}

/* Seconds from step to step, by the times at which they ended. */
static double pace_of(const struct run_table *table)
{
	const double *times = run_table_column(table, "time");
	size_t first = SIZE_MAX, last = 0;
	for (size_t row = first_of(table); times && row < table->count; row++) {
		if (isnan(times[row]))
			continue;
		first = first == SIZE_MAX ? row : first;
		last = row;
	}
	if (first == SIZE_MAX || table->steps[last] == table->steps[first])
		return NAN;
	return fmax(times[last] - times[first], 0) / (double)(table->steps[last] - table->steps[first]);
}

static struct view_rates rates_of(const struct run_table *table)
{
	size_t steps, waits;
	const double milliseconds = sum(table, "milliseconds", &steps);
	const double exposed = sum(table, "exposed_milliseconds", &waits);
	struct view_rates rates = { .tokens = mean(table, "tokens_per_second"),
		.milliseconds = steps ? milliseconds / (double)steps : NAN,
		.exposed = waits && milliseconds > 0 ? exposed / milliseconds : NAN,
		.mfu = mean(table, "mfu"),
		.pace = pace_of(table) };
	if (isnan(rates.pace))
		rates.pace = rates.milliseconds / 1e3;
	return rates;
}

/* A program may not log how long its steps take. */
static double goodput_of(const struct run *run)
{
	return run_table_column(&run->curve, "milliseconds") ? run_time(run).goodput : NAN;
}

/* How many steps the run is to do. muster-train records it at each start; a program may have it in
 * a part of the configuration that its checkpoints keep. */
static int64_t steps_of(const struct history_row *last, const json_t *config)
{
	const char *key;
	json_t *part;
	if (last->steps > 0)
		return last->steps;
	json_object_foreach((json_t *)config, key, part)
	{
		const json_t *steps = json_object_get(part, "steps");
		if (json_is_integer(steps) && json_integer_value(steps) > 0)
			return json_integer_value(steps);
	}
	return -1;
}

/* ---- ranks ---- */

static bool waits(const struct flight_view *record)
{
	return record->waits > 0 || record->phase == FLIGHT_WORD;
}

/* The moment of a record's latest change, seconds since the epoch; NAN: not known. */
static double moment_of(const struct flight_view *record)
{
	const double latest = flight_latest(record);
	return latest > 0 ? latest + record->wall : NAN;
}

static void fill_rank(struct view_rank *rank, const struct flight_view *record, double newest,
	double now)
{
	*rank = (struct view_rank) { .rank = record->rank,
		.step = record->phase ? (int64_t)(record->step & INT64_MAX) : -1,
		.behind = newest - moment_of(record),
		.waits = waits(record) };
	memcpy(rank->node, record->node, sizeof rank->node);
	const double since = flight_words(record, rank->words, sizeof rank->words);
	rank->seconds = since > 0 ? fmax(now - since - record->wall, 0) : NAN;
}

/* Who holds the others up: while some have waited long, all that don't wait in the same step or in
 * an earlier one. Those that wait in an earlier step do, too. */
static void mark_holders(struct view *view)
{
	int64_t step = -1;
	for (size_t i = 0; i < view->count; i++) {
		const struct view_rank *rank = &view->ranks[i];
		if (rank->waits && rank->seconds >= VIEW_HELD && rank->step > step)
			step = rank->step;
	}
	for (size_t i = 0; step >= 0 && i < view->count; i++) {
		struct view_rank *rank = &view->ranks[i];
		const bool before = rank->step >= 0 && rank->step < step;
		rank->holds = rank->absent || before || (!rank->waits && rank->step == step);
	}
}

/* Adds rows for ranks that have no record. The records are sorted by rank. */
static void add_absent(struct view *view, const struct flight_list *list)
{
	int next = 0, world = 0;
	for (size_t i = 0; i < list->count; i++)
		world = list->views[i].world_size > world ? list->views[i].world_size : world;
	for (size_t i = 0; i <= list->count; i++) {
		const int rank = i < list->count ? list->views[i].rank : world;
		for (; next < rank && view->absent < VIEW_ABSENT_MOST; next++, view->absent++) {
			struct view_rank *row = &view->ranks[view->count++];
			*row = (struct view_rank) { .rank = next,
				.words = "has no record: it has not begun, or has ended",
				.step = -1,
				.seconds = NAN,
				.behind = NAN,
				.absent = true };
		}
		view->absent += next < rank ? rank - next : 0;
		next = rank >= next ? rank + 1 : next;
	}
}

/* After the end of the run, time stands still for its ranks. */
static int make_ranks(struct view *view, const struct flight_list *list, struct err *err)
{
	double newest = NAN;
	view->damaged = list->damaged;
	view->old = list->before;
	if (list->count == 0)
		return 0;
	view->ranks = calloc(list->count + VIEW_ABSENT_MOST, sizeof *view->ranks);
	if (!view->ranks)
		return err_set(err, "view: out of memory");
	for (size_t i = 0; i < list->count; i++)
		newest = fmax(newest, moment_of(&list->views[i]));
	const bool runs = view->last->end == HISTORY_RUNNING && !view->old;
	for (size_t i = 0; i < list->count; i++)
		fill_rank(&view->ranks[view->count++], &list->views[i], newest, runs ? view->now : newest);
	add_absent(view, list);
	mark_holders(view);
	return 0;
}

/* A program may log no steps at all; its checkpoints have one, and its ranks stand in the next. */
static int64_t step_of(const struct view *view)
{
	int64_t step = view->last->last > view->last->from ? view->last->last : view->last->from;
	step = view->run->saved > step ? view->run->saved : step;
	for (size_t i = 0; !view->old && i < view->count; i++)
		if (view->ranks[i].step - 1 > step)
			step = view->ranks[i].step - 1;
	return step;
}

/* ---- the whole ---- */

int view_make(struct view *view, const struct run *run, const struct flight_list *list, double now,
	struct err *err)
{
	const struct history_row *last = &run->rows[run->attempts - 1];
	int64_t step, validated = -1;
	const double loss = newest(&run->curve, "loss_bits", &step);
	const double validation = newest(&run->curve, "validation_loss_bits", &validated);
	*view = (struct view) { .run = run,
		.last = last,
		.before = run->attempts > 1 ? last - 1 : NULL,
		.now = now,
		.steps = steps_of(last, run->config),
		.left = NAN,
		.loss = loss,
		.validation = validation,
		.validated = validated,
		.rates = rates_of(&run->tables[run->attempts - 1]),
		.goodput = goodput_of(run) };
	if (make_ranks(view, list, err) < 0)
		return -1;
	view->step = step_of(view);
	if (last->end == HISTORY_RUNNING && view->steps >= view->step)
		view->left = (double)(view->steps - view->step) * view->rates.pace;
	return 0;
}

void view_clear(struct view *view)
{
	free(view->ranks);
	*view = (struct view) { 0 };
}

int view_update(struct view *view, struct run *run, enum view_order order, struct err *err)
{
	struct view fresh;
	struct flight_list list;
	if (run_update(run, err) < 0 || flight_files_read(run->dir.path, &list, err) < 0)
		return -1;
	const int rc = view_make(&fresh, run, &list, clock_wall(), err);
	flight_list_clear(&list);
	if (rc < 0) {
		view_clear(&fresh);
		return -1;
	}
	view_sort(&fresh, order);
	view_clear(view);
	*view = fresh;
	return 0;
}

/* ---- orders ---- */

static int by_rank(const struct view_rank *a, const struct view_rank *b)
{
	return (a->rank > b->rank) - (a->rank < b->rank);
}

/* The larger first; what is not known last. */
static int by_double(double a, double b)
{
	return isnan(a) || isnan(b) ? isnan(a) - isnan(b) : (a < b) - (a > b);
}

static int holding(const void *a, const void *b)
{
	const struct view_rank *x = a, *y = b;
	const int holds = y->holds - x->holds;
	const int behind = x->holds ? by_double(x->behind, y->behind) : 0;
	return holds ? holds : behind ? behind : by_rank(x, y);
}

static int rank(const void *a, const void *b)
{
	return by_rank(a, b);
}

static int node(const void *a, const void *b)
{
	const struct view_rank *x = a, *y = b;
	const int nodes = strcmp(x->node, y->node);
	return nodes ? nodes : by_rank(x, y);
}

static int step(const void *a, const void *b)
{
	const struct view_rank *x = a, *y = b;
	const int steps = (x->step > y->step) - (x->step < y->step);
	return steps ? steps : by_rank(x, y);
}

static int time_there(const void *a, const void *b)
{
	const struct view_rank *x = a, *y = b;
	const int seconds = by_double(x->seconds, y->seconds);
	return seconds ? seconds : by_rank(x, y);
}

static const struct {
	const char *name;
	int (*compare)(const void *a, const void *b);
} orders[VIEW_ORDERS] = { [VIEW_HOLDING] = { "holding", holding },
	[VIEW_RANK] = { "rank", rank },
	[VIEW_NODE] = { "node", node },
	[VIEW_STEP] = { "step", step },
	[VIEW_TIME] = { "time", time_there } };

const char *view_order_name(enum view_order order)
{
	return orders[order].name;
}

enum view_order view_order_of(const char *name)
{
	int order = 0;
	while (order < VIEW_ORDERS && strcmp(orders[order].name, name) != 0)
		order++;
	return (enum view_order)order;
}

void view_sort(struct view *view, enum view_order order)
{
	if (view->count > 0)
		qsort(view->ranks, view->count, sizeof *view->ranks, orders[order].compare);
}
