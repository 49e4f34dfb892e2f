/* SPDX-License-Identifier: Apache-2.0 */
/* Computes medians over the last attempt's lines, so that single steps that a busy machine made
 * long do not count. */
#include "config.h"

#include "runs/scaling.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "common/auto.h"
#include "runs/gnuplot.h"
#include "runs/run_table.h"

#define BAR_WIDTH 50

/* The rows that have all numbers; *rows is malloc'ed. */
static size_t whole_rows(const struct run_table *table, size_t **rows)
{
	static const char *const needed[] = { "loss_bits", "ranks", "tokens_per_second", "milliseconds",
		"exposed_milliseconds", "communication_milliseconds" };
	size_t count = 0;
	*rows = calloc(table->count + 1, sizeof **rows);
	for (size_t row = 0; *rows && row < table->count; row++) {
		bool whole = true;
		for (size_t k = 0; k < sizeof needed / sizeof needed[0]; k++)
			whole = whole && !isnan(run_table_value(table, needed[k], row));
		if (whole)
			(*rows)[count++] = row;
	}
	return count;
}

/* The median of `name`, less what is given as `minus`, but not below 0. */
static double median_of(const struct run_table *table, const size_t *rows, size_t count,
	const char *name, const char *minus)
{
	AUTO_FREE double *values = malloc(count * sizeof *values);
	if (!values)
		return NAN;
	for (size_t i = 0; i < count; i++) {
		values[i] = run_table_value(table, name, rows[i]);
		if (minus)
			values[i] = fmax(values[i] - run_table_value(table, minus, rows[i]), 0);
	}
	return run_table_median(values, count);
}

static int summarise(const struct run_table *table, size_t skip, int attempt,
	struct scaling_run *run, struct err *err)
{
	AUTO_FREE size_t *rows = NULL;
	const size_t count = whole_rows(table, &rows);
	if (!rows)
		return err_set(err, "scaling: out of memory");
	if (count <= skip)
		return err_fail(err, EXIT_DATA,
			"scaling: metrics-%d.jsonl has %zu steps with all numbers, of which the first %zu "
			"don't count: train more steps",
			attempt, count, skip);
	const size_t *from = rows + skip, left = count - skip;
	*run = (struct scaling_run) {
		.ranks = (int)run_table_value(table, "ranks", rows[count - 1]),
		.steps = (int)left,
		.rate = median_of(table, from, left, "tokens_per_second", NULL),
		.milliseconds = median_of(table, from, left, "milliseconds", NULL),
		.communication = median_of(table, from, left, "communication_milliseconds", NULL),
		.hidden =
			median_of(table, from, left, "communication_milliseconds", "exposed_milliseconds"),
		.exposed = median_of(table, from, left, "exposed_milliseconds", NULL),
	};
	if (run->ranks < 1 || !(run->rate > 0))
		return err_fail(err, EXIT_DATA,
			"scaling: couldn't use metrics-%d.jsonl: it has %d ranks and a rate of %g, and both "
			"must be above 0",
			attempt, run->ranks, run->rate);
	return 0;
}

int scaling_read(int dirfd, int skip, struct scaling_run *run, struct err *err)
{
	AUTO_FREE int *attempts = NULL;
	struct run_table table;
	size_t count;
	if (run_table_list(dirfd, &attempts, &count, err) < 0)
		return -1;
	if (count == 0)
		return err_fail(err, EXIT_DATA,
			"scaling: there is no metrics-N.jsonl: give the --ckpt-dir of a run");
	int rc = run_table_read(dirfd, attempts[count - 1], &table, err);
	if (rc == 0)
		rc = summarise(&table, (size_t)skip, attempts[count - 1], run, err);
	run_table_clear(&table);
	return rc;
}

double scaling_speedup(const struct scaling_run *runs, size_t i)
{
	return runs[i].rate / runs[0].rate;
}

double scaling_efficiency(const struct scaling_run *runs, size_t i)
{
	return scaling_speedup(runs, i) * runs[0].ranks / runs[i].ranks;
}

void scaling_print(const struct scaling_run *runs, size_t count, FILE *out)
{
	fprintf(out,
		"ranks  tokens/s  speedup  efficiency  step ms  communication ms    hidden   exposed\n");
	for (size_t i = 0; i < count; i++)
		fprintf(out, "%5d  %8.0f  %7.2f  %9.1f%%  %7.1f  %16.2f  %8.2f  %8.2f\n", runs[i].ranks,
			runs[i].rate, scaling_speedup(runs, i), scaling_efficiency(runs, i) * 100,
			runs[i].milliseconds, runs[i].communication, runs[i].hidden, runs[i].exposed);
}

void scaling_bars(const struct scaling_run *runs, size_t count, FILE *out)
{
	fprintf(out, "efficiency against perfect\n");
	for (size_t i = 0; i < count; i++) {
		double efficiency = scaling_efficiency(runs, i);
		int length = (int)lround(fmin(efficiency, 1) * BAR_WIDTH);
		fprintf(out, "%5d  ", runs[i].ranks);
		for (int k = 0; k < BAR_WIDTH; k++)
			fputc(k < length ? '#' : '.', out);
		fprintf(out, "  %.1f%%\n", efficiency * 100);
	}
}

/* The columns of $runs: ranks, speedup, perfect speedup, efficiency in percent. */
void scaling_script(const struct scaling_run *runs, size_t count, FILE *out)
{
	fprintf(out, "set terminal svg size 640,420 background '#ffffff'\n$runs <<END\n");
	for (size_t i = 0; i < count; i++)
		fprintf(out, "%d %.9g %.9g %.1f\n", runs[i].ranks, scaling_speedup(runs, i),
			(double)runs[i].ranks / runs[0].ranks, 100 * scaling_efficiency(runs, i));
	fputs(
		"END\n"
		"set xlabel 'ranks'\n"
		"set ylabel 'speedup'\n"
		"set xrange [0:*]\n"
		"set yrange [0:*]\n"
		"set key left top\n"
		"set border 3\n"
		"set tics nomirror\n"
		"plot $runs using 1:3 with lines dashtype 2 linecolor '#888888' title 'perfect', \\\n"
		"  $runs using 1:2 with linespoints pointtype 7 linecolor '#0066cc' title 'measured', \\\n"
		"  $runs using 1:2:(sprintf('%.1f%%', $4)) with labels right offset -1,0.7 notitle\n",
		out);
}

int scaling_plot(const struct scaling_run *runs, size_t count, const char *path, struct err *err)
{
	AUTO_FREE char *script = NULL;
	size_t size;
	FILE *out = open_memstream(&script, &size);
	if (!out)
		return err_set(err, "scaling: out of memory");
	scaling_script(runs, count, out);
	return fclose(out) ? err_set(err, "scaling: out of memory") : gnuplot_draw(script, path, err);
}

json_t *scaling_json(const struct scaling_run *runs, size_t count)
{
	json_t *list = json_array();
	for (size_t i = 0; list && i < count; i++) {
		const struct scaling_run *run = &runs[i];
		json_t *entry = json_pack("{s:i, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "ranks",
			run->ranks, "steps", run->steps, "tokens_per_second", run->rate, "speedup",
			scaling_speedup(runs, i), "efficiency", scaling_efficiency(runs, i), "milliseconds",
			run->milliseconds, "communication_milliseconds", run->communication,
			"hidden_milliseconds", run->hidden, "exposed_milliseconds", run->exposed);
		if (!entry || json_array_append_new(list, entry) < 0) {
			json_decref(list);
			return NULL;
		}
	}
	return json_pack("{s:o}", "runs", list);
}
