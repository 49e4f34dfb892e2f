/* SPDX-License-Identifier: Apache-2.0 */
/* Joins two sources: a killed attempt leaves no record of its end, so only its metrics file shows
 * how far it came. */
#include "config.h"
#include "runs/history.h"

#include <math.h>
#include <string.h>

/* ---- steps ---- */

/* The last step that is known to have been done; -1: none. */
static int64_t last_step(const struct run_table *table)
{
	for (size_t row = table->count; row-- > 0;)
		if (!isnan(run_table_value(table, "milliseconds", row))
			|| !isnan(run_table_value(table, "loss_bits", row)))
			return (int64_t)table->steps[row];
	return -1;
}

/* The sum of the seconds of all steps after `step`. */
static double seconds_after(const struct run_table *table, int64_t step)
{
	const double *milliseconds = run_table_column(table, "milliseconds");
	double sum = 0;
	for (size_t row = 0; milliseconds && row < table->count; row++)
		if ((int64_t)table->steps[row] > step && !isnan(milliseconds[row]))
			sum += milliseconds[row] / 1e3;
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
			row->noticed = record->time;
			continue;
		}
		row->why = record->why;
		row->end = end_of(record->status);
		row->status = record->status;
		row->seconds = record->time - row->began;
		return;
	}
}

static void complete(struct history_row *row, const struct run_table *table, bool in_use,
	double now)
{
	const int64_t last = last_step(table);
	if (last > row->last)
		row->last = last;
	if (row->end != HISTORY_KILLED)
		return;
	if (in_use) {
		row->end = HISTORY_RUNNING;
		row->seconds = now - row->began;
	} else if (table->time >= row->began) {
		row->seconds = table->time - row->began;
	}
}

size_t history_rows(const struct attempts_record *records, size_t count,
	const struct run_table *tables, bool in_use, double now, struct history_row *rows)
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
			.machine = record->machine,
			.version = record->version,
			.world_size = record->world_size,
			.steps = record->steps,
			.from = record->step,
			.last = -1,
			.end = HISTORY_KILLED,
			.status = -1,
			.why = "",
			.notice = "",
			.queued = record->submitted > 0 && record->started >= record->submitted
				? record->started - record->submitted
				: NAN,
			.noticed = NAN,
			.began = record->time,
			.seconds = NAN,
			.lost = NAN,
			.waited = NAN };
		follow(row, records, i, count);
		made++;
	}
	for (size_t r = 0; r < made; r++) {
		complete(&rows[r], &tables[r], in_use && r + 1 == made, now);
		if (r + 1 == made)
			continue;
		if (last_step(&tables[r]) >= 0 || rows[r].last <= rows[r + 1].from)
			rows[r].lost = seconds_after(&tables[r], rows[r + 1].from);
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
