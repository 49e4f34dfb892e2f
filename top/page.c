/* SPDX-License-Identifier: Apache-2.0 */
/* Words a view. */
#include "config.h"

#include "top/page.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/progress.h"
#include "top/dots.h"
#include "top/plain.h"

#define NODE_MOST 20 /* columns of a node's name */

/* ---- lines ---- */

/* Adds to the text of a line. */
static void __attribute__((format(printf, 2, 3)))
add(char line[PAGE_LINE_SIZE], const char *format, ...)
{
	const size_t length = strlen(line);
	va_list args;
	va_start(args, format);
	vsnprintf(line + length, PAGE_LINE_SIZE - length, format, args);
	va_end(args);
}

static void print(const char *label, const char *text, int columns, FILE *out)
{
	char whole[PAGE_LINE_SIZE + PAGE_LABEL + 1], line[PAGE_LINE_SIZE];
	snprintf(whole, sizeof whole, "%-*s%s", label ? PAGE_LABEL : 0, label ? label : "", text);
	plain_fit(whole, columns, line, sizeof line);
	fprintf(out, "%s\n", line);
}

/* ---- the state ---- */

static void add_ended(const struct view *view, const struct history_row *row, char *line)
{
	char ago[PROGRESS_TIME_SIZE];
	add(line, "attempt %d ended with %d, %s ago", row->number, row->status,
		progress_time(view->now - row->began - row->seconds, ago));
}

static void add_running(const struct view *view, char *line)
{
	const struct history_row *last = view->last;
	char time[PROGRESS_TIME_SIZE];
	add(line, "runs: attempt %d", last->number);
	if (last->job)
		add(line, " of job %" PRIu32, last->job);
	add(line, " for %s, %d rank%s on %s", progress_time(last->seconds, time), last->world_size,
		last->world_size == 1 ? "" : "s", last->nodes);
	if (last->notice[0])
		add(line, "; is to stop: %s came %s ago", last->notice,
			progress_time(view->now - last->noticed, time));
}

static void add_state(const struct view *view, char *line)
{
	const struct history_row *last = view->last;
	char ago[PROGRESS_TIME_SIZE];
	switch (last->end) {
	case HISTORY_RUNNING: add_running(view, line); return;
	case HISTORY_FINISHED: add(line, "finished: "); break;
	case HISTORY_FAILED: add(line, "failed: "); break;
	case HISTORY_STOPPED:
	case HISTORY_LOST:
		if (last->job)
			add(line, "waiting: requeued as job %" PRIu32 ", ", last->job);
		else
			add(line, "stopped, start it again to go on: ");
		break;
	case HISTORY_KILLED:
		add(line, "gone: attempt %d left no record of its end", last->number);
		if (!isnan(last->seconds))
			add(line, ", its last step ended %s ago",
				progress_time(view->now - last->began - last->seconds, ago));
		if (last->job)
			add(line, "; Slurm may bring job %" PRIu32 " back", last->job);
		return;
	}
	add_ended(view, last, line);
}

/* ---- figures ---- */

/* The reason of what the first line says. */
static void add_why(const struct view *view, char *line)
{
	const enum history_end end = view->last->end;
	if (end == HISTORY_STOPPED || end == HISTORY_LOST || end == HISTORY_FAILED)
		add(line, "%s", view->last->why);
}

static void add_step(const struct view *view, char *line)
{
	const struct view_rates *rates = &view->rates;
	char left[PROGRESS_TIME_SIZE];
	if (view->step < 0)
		add(line, "none is done");
	else
		add(line, "%" PRId64, view->step);
	if (view->steps > 0)
		add(line, " of %" PRId64 " (%.1f %%)", view->steps,
			100 * fmax((double)view->step, 0) / (double)view->steps);
	if (!isnan(rates->pace))
		add(line, ", %.3g s each", rates->pace);
	if (!isnan(view->left))
		add(line, ", %s left", progress_time(view->left, left));
}

static void add_loss(const struct view *view, char *line)
{
	if (isnan(view->loss) && view->run->curve.count == 0)
		add(line, "none yet");
	else
		add(line, "%.6f", view->loss);
	if (view->validated >= 0)
		add(line, ", validation %.6f after step %" PRId64, view->validation, view->validated);
}

static void add_speed(const struct view *view, char *line)
{
	const struct view_rates *rates = &view->rates;
	if (isnan(rates->tokens))
		add(line, "not logged");
	else
		add(line, "%.0f tokens/s", rates->tokens);
	if (!isnan(rates->mfu))
		add(line, ", MFU %.1f %%", 100 * rates->mfu);
	if (!isnan(rates->exposed))
		add(line, ", %.1f %% of a step waits for communication (%.1f of %.1f ms)",
			100 * rates->exposed, rates->exposed * rates->milliseconds, rates->milliseconds);
}

static void add_checkpoint(const struct view *view, char *line)
{
	char age[PROGRESS_TIME_SIZE];
	if (view->run->saved < 0)
		add(line, "none yet");
	else
		add(line, "step %" PRId64 ", %s old", view->run->saved,
			progress_time(view->now - view->run->saved_at, age));
}

static void add_attempts(const struct view *view, char *line)
{
	add(line, "%zu", view->run->attempts);
	if (!isnan(view->goodput))
		add(line, ", goodput %.1f %%", 100 * view->goodput);
	if (view->before) {
		add(line, "; ");
		if (view->before->status >= 0)
			add_ended(view, view->before, line);
		else
			add(line, "attempt %d was killed", view->before->number);
		if (view->before->last >= 0)
			add(line, " at step %" PRId64, view->before->last);
		if (view->before->why[0])
			add(line, ": %s", view->before->why);
	}
}

void page_figures(const struct view *view, int columns, FILE *out)
{
	static const struct {
		const char *label;
		void (*add)(const struct view *view, char *line);
	} figures[] = { { "why", add_why }, { "step", add_step }, { "loss", add_loss },
		{ "speed", add_speed }, { "checkpoint", add_checkpoint }, { "attempts", add_attempts } };
	char line[PAGE_LINE_SIZE] = "";
	add(line, "%.1000s ", view->run->dir.path);
	add_state(view, line);
	print(NULL, line, columns, out);
	for (size_t i = 0; i < sizeof figures / sizeof figures[0]; i++) {
		line[0] = '\0';
		figures[i].add(view, line);
		if (line[0])
			print(figures[i].label, line, columns, out);
	}
}

/* ---- the curve ---- */

void page_curve(const struct view *view, int columns, int rows, FILE *out)
{
	const struct run_table *curve = &view->run->curve;
	const double *losses = run_table_column(curve, "loss");
	AUTO_FREE double *finite = malloc((curve->count + 1) * sizeof *finite);
	struct dots dots;
	size_t count = 0;
	for (size_t row = 0; finite && losses && row < curve->count; row++)
		if (isfinite(losses[row]))
			finite[count++] = losses[row];
	if (count < 2 || columns < 2 * PAGE_LABEL || rows < 1)
		return;
	dots_draw(&dots, finite, count, columns - PAGE_LABEL, rows);
	for (int row = 0; row < dots.height; row++) {
		const bool edge = row == 0 || row == dots.height - 1;
		char label[PAGE_LABEL] = "";
		if (edge)
			snprintf(label, sizeof label, "%.4g", row == 0 ? dots.most : dots.least);
		fprintf(out, "%*s ", PAGE_LABEL - 1, label);
		dots_print(&dots, row, plain_is_unicode(), out);
		fputc('\n', out);
	}
}

/* ---- ranks ---- */

void page_note(const struct view *view, char *out, size_t size)
{
	char line[PAGE_LINE_SIZE] = "";
	if (view->count == 0)
		add(line, "no rank has left a record: what ended in order leaves none");
	else if (view->old)
		add(line, "where ranks of an attempt before the last one stood");
	else if (view->last->end != HISTORY_RUNNING)
		add(line, "where the ranks stood");
	if (view->absent)
		add(line, "%s%d rank%s no record", line[0] ? "; " : "", view->absent,
			view->absent == 1 ? " has" : "s have");
	if (view->damaged)
		add(line, "%s%d file%s can't be read as a record", line[0] ? "; " : "", view->damaged,
			view->damaged == 1 ? "" : "s");
	snprintf(out, size, "%s", line);
}

int page_node_width(const struct view *view)
{
	int widest = (int)strlen("node");
	for (size_t i = 0; i < view->count; i++) {
		char node[sizeof view->ranks[i].node];
		const int width = plain_fit(view->ranks[i].node, NODE_MOST, node, sizeof node);
		widest = width > widest ? width : widest;
	}
	return widest;
}

void page_title(int node_width, int columns, char *out, size_t size)
{
	char line[200];
	snprintf(line, sizeof line, "   rank  %-*s  %8s %9s %9s  %s", node_width, "node", "step", "for",
		"behind", "doing");
	plain_fit(line, columns, out, size);
}

static char *seconds_text(double seconds, char out[16])
{
	snprintf(out, 16, isnan(seconds) ? "-" : "%.1f s", fmin(seconds, 9999999));
	return out;
}

/* The step has a column of its own. */
static int place_length(const struct view_rank *rank, const char *step)
{
	char end[40];
	const int length = (int)strlen(rank->words);
	const int tail = snprintf(end, sizeof end, " of step %s", step);
	return length > tail && strcmp(rank->words + length - tail, end) == 0 ? length - tail : length;
}

void page_rank(const struct view_rank *rank, int node_width, int columns, char *out, size_t size)
{
	char line[PAGE_LINE_SIZE] = "", node[64], step[24] = "-", time[16], behind[16];
	const int pad = node_width - plain_fit(rank->node, NODE_MOST, node, sizeof node);
	if (rank->step > 0)
		snprintf(step, sizeof step, "%" PRId64, rank->step);
	add(line, "%c%6d  %s%*s  %8s %9s %9s  %.*s",
		rank->holds       ? '>'
			: rank->waits ? '.'
						  : ' ',
		rank->rank, node, pad, "", step, seconds_text(rank->seconds, time),
		seconds_text(rank->behind, behind), place_length(rank, step), rank->words);
	plain_fit(line, columns, out, size);
}
