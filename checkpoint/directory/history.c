/* SPDX-License-Identifier: Apache-2.0 */
/* Joins two sources: a killed attempt leaves no record of its end, so only its metrics file shows
 * how far it came. */
#include "config.h"
#include "checkpoint/directory/history.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- metrics ---- */

/* Converts ISO 8601 in UTC, as clock_iso8601 writes it, to seconds since the epoch; 0 for anything
 * else. */
static double parse_time(const char *text)
{
	struct tm tm = { 0 };
	const char *rest = text ? strptime(text, "%Y-%m-%dT%H:%M:%S", &tm) : NULL;
	if (!rest)
		return 0;
	double fraction = *rest == '.' ? strtod(rest, NULL) : 0;
	return (double)timegm(&tm) + fraction;
}

/* Takes one line of a metrics file. The line of a validation has no milliseconds and only updates
 * the time. */
static int add_line(struct history_steps *steps, const json_t *line)
{
	const json_t *step = json_object_get(line, "step"),
				 *milliseconds = json_object_get(line, "milliseconds");
	double time = parse_time(json_string_value(json_object_get(line, "time")));
	if (!json_is_integer(step))
		return 0;
	steps->time = time > 0 ? time : steps->time;
	if (!json_is_number(milliseconds))
		return 0;
	if (steps->count == 0)
		steps->from = json_integer_value(step) - 1;
	if (json_integer_value(step) != steps->from + (int64_t)steps->count + 1)
		return 0;
	if ((steps->count & (steps->count + 1)) == 0) {
		double *more = realloc(steps->seconds, (2 * steps->count + 2) * sizeof *more);
		if (!more)
			return -1;
		steps->seconds = more;
	}
	steps->seconds[steps->count++] = json_number_value(milliseconds) / 1e3;
	steps->last = json_integer_value(step);
	return 0;
}

int history_steps_parse(const char *text, size_t size, struct history_steps *steps)
{
	*steps = (struct history_steps) { .last = -1, .from = -1 };
	for (size_t at = 0; at < size;) {
		const char *end = memchr(text + at, '\n', size - at);
		if (!end)
			break;
		json_t *line = json_loadb(text + at, (size_t)(end - text) - at, 0, NULL);
		int result = line ? add_line(steps, line) : 0;
		json_decref(line);
		if (result < 0) {
			history_steps_clear(steps);
			return -1;
		}
		at = (size_t)(end - text) + 1;
	}
	return 0;
}

void history_steps_clear(struct history_steps *steps)
{
	free(steps->seconds);
	*steps = (struct history_steps) { .last = -1, .from = -1 };
}

double history_steps_after(const struct history_steps *steps, int64_t step)
{
	double sum = 0;
	for (size_t i = 0; i < steps->count; i++)
		if (steps->from + (int64_t)i + 1 > step)
			sum += steps->seconds[i];
	return sum;
}

/* ---- rows ---- */

static enum history_end end_of(int status)
{
	return status == EXIT_OK     ? HISTORY_FINISHED
		: status == EXIT_REQUEUE ? HISTORY_STOPPED
		: status == EXIT_LOST    ? HISTORY_LOST
								 : HISTORY_FAILED;
}

static bool same_attempt(const struct attempts_record *a, const struct attempts_record *b)
{
	return a->job == b->job && a->attempt == b->attempt && strcmp(a->cluster, b->cluster) == 0;
}

/* Collects the records after the start that belong to the same attempt, up to its next start:
 * outside Slurm all attempts have number 0. */
static void follow(struct history_row *row, const struct attempts_record *records, size_t start,
	size_t count)
{
	for (size_t i = start + 1; i < count; i++) {
		const struct attempts_record *record = &records[i];
		if (!same_attempt(record, &records[start]))
			continue;
		if (record->event == ATTEMPTS_START)
			return;
		row->last = record->step > row->last ? record->step : row->last;
		if (record->event == ATTEMPTS_NOTICE) {
			row->notice = record->why;
			continue;
		}
		row->why = record->why;
		row->end = end_of(record->status);
		row->seconds = record->time - row->began;
		return;
	}
}

static void complete(struct history_row *row, const struct history_steps *steps, bool in_use,
	double now)
{
	if (steps->last > row->last)
		row->last = steps->last;
	if (row->end != HISTORY_KILLED)
		return;
	if (in_use) {
		row->end = HISTORY_RUNNING;
		row->seconds = now - row->began;
	} else if (steps->time >= row->began) {
		row->seconds = steps->time - row->began;
	}
}

size_t history_rows(const struct attempts_record *records, size_t count,
	const struct history_steps *steps, bool in_use, double now, struct history_row *rows)
{
	size_t made = 0;
	for (size_t i = 0; i < count; i++) {
		const struct attempts_record *record = &records[i];
		if (record->event != ATTEMPTS_START)
			continue;
		struct history_row *row = &rows[made];
		*row = (struct history_row) { .job = record->job,
			.attempt = record->attempt,
			.number = (int)made,
			.nodes = record->nodes,
			.world_size = record->world_size,
			.from = record->step,
			.last = -1,
			.end = HISTORY_KILLED,
			.why = "",
			.notice = "",
			.began = record->time,
			.seconds = NAN,
			.lost = NAN,
			.waited = NAN };
		follow(row, records, i, count);
		made++;
	}
	for (size_t r = 0; r < made; r++) {
		complete(&rows[r], &steps[r], in_use && r + 1 == made, now);
		if (r + 1 == made)
			continue;
		if (steps[r].count > 0 || rows[r].last <= rows[r + 1].from)
			rows[r].lost = history_steps_after(&steps[r], rows[r + 1].from);
		rows[r].waited = rows[r + 1].began - rows[r].began - rows[r].seconds;
	}
	return made;
}

/* ---- sums ---- */

struct history_sum history_sum(const struct history_row *rows, size_t count)
{
	struct history_sum sum = { .attempts = count };
	for (size_t r = 0; r < count; r++) {
		sum.interruptions += rows[r].end != HISTORY_FINISHED && rows[r].end != HISTORY_RUNNING;
		sum.seconds += isnan(rows[r].seconds) ? 0 : rows[r].seconds;
		sum.lost += isnan(rows[r].lost) ? 0 : rows[r].lost;
		sum.waited += isnan(rows[r].waited) ? 0 : rows[r].waited;
	}
	sum.mean_between = sum.interruptions ? sum.seconds / (double)sum.interruptions : NAN;
	return sum;
}

const char *history_end_name(enum history_end end)
{
	static const char *const names[] = { [HISTORY_FINISHED] = "finished",
		[HISTORY_STOPPED] = "stopped",
		[HISTORY_LOST] = "lost",
		[HISTORY_FAILED] = "failed",
		[HISTORY_KILLED] = "killed",
		[HISTORY_RUNNING] = "running" };
	return names[end];
}
