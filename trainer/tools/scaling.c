/* SPDX-License-Identifier: Apache-2.0 */
/* Computes medians over the last attempt's lines, so that single steps that a busy machine made
 * long do not count. */
#include "trainer/tools/scaling.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/io.h"
#include "trainer/tools/curve.h"

#define METRICS_LIMIT ((size_t)4 << 30)
#define BAR_WIDTH 50

/* The plot's measures, in pixels. */
#define PLOT_WIDTH 640
#define PLOT_HEIGHT 420
#define PLOT_LEFT 60
#define PLOT_RIGHT 600
#define PLOT_TOP 30
#define PLOT_BOTTOM 370

enum column { RATE, MILLISECONDS, COMMUNICATION, HIDDEN, EXPOSED, COLUMNS };

/* The values of all steps, column by column. */
struct samples {
	double *values[COLUMNS];
	size_t count, room;
	int ranks;
};

static int add_sample(struct samples *samples, const double values[COLUMNS])
{
	if (samples->count == samples->room) {
		size_t room = samples->room ? samples->room * 2 : 256;
		for (int i = 0; i < COLUMNS; i++) {
			double *grown = realloc(samples->values[i], room * sizeof *grown);
			if (!grown)
				return -1;
			samples->values[i] = grown;
		}
		samples->room = room;
	}
	for (int i = 0; i < COLUMNS; i++)
		samples->values[i][samples->count] = values[i];
	samples->count++;
	return 0;
}

/* Takes in a step's line; ignores others. */
static int take_line(struct samples *samples, const json_t *line)
{
	double values[COLUMNS];
	const json_t *ranks = json_object_get(line, "ranks"),
				 *all = json_object_get(line, "communication_milliseconds");
	if (!json_object_get(line, "loss_bits") || !json_is_integer(ranks) || !json_is_number(all))
		return 0;
	samples->ranks = (int)json_integer_value(ranks);
	values[RATE] = json_number_value(json_object_get(line, "tokens_per_second"));
	values[MILLISECONDS] = json_number_value(json_object_get(line, "milliseconds"));
	values[EXPOSED] = json_number_value(json_object_get(line, "exposed_milliseconds"));
	values[COMMUNICATION] = json_number_value(all);
	values[HIDDEN] = fmax(values[COMMUNICATION] - values[EXPOSED], 0);
	return add_sample(samples, values);
}

static int compare(const void *a, const void *b)
{
	return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

/* Sorts the values and returns their median. */
static double median(double *values, size_t count)
{
	/* NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker): count is not 0 */
	qsort(values, count, sizeof *values, compare);
	return (values[(count - 1) / 2] + values[count / 2]) / 2;
}

static int read_lines(int dirfd, const char *name, struct samples *samples, struct err *err)
{
	AUTO_FREE char *data = NULL;
	size_t size;
	if (io_read_file(dirfd, name, METRICS_LIMIT, &data, &size, err) < 0)
		return err_prefix(err, "scaling");
	for (char *line = data, *end; (end = memchr(line, '\n', size - (size_t)(line - data)));
		 line = end + 1) {
		json_t *json = json_loadb(line, (size_t)(end - line), 0, NULL);
		int rc = json ? take_line(samples, json) : 0; /* a torn line is ignored */
		json_decref(json);
		if (rc < 0)
			return err_set(err, "scaling: out of memory");
	}
	return 0;
}

static int summarise(const struct samples *samples, size_t skip, const char *name,
	struct scaling_run *run, struct err *err)
{
	double m[COLUMNS];
	if (samples->count <= skip)
		return err_fail(err, EXIT_DATA,
			"scaling: %s has %zu steps with all numbers, of which the first %zu don't count: train "
			"more steps",
			name, samples->count, skip);
	for (int i = 0; i < COLUMNS; i++)
		m[i] = median(samples->values[i] + skip, samples->count - skip);
	*run = (struct scaling_run) { .ranks = samples->ranks,
		.steps = (int)(samples->count - skip),
		.rate = m[RATE],
		.milliseconds = m[MILLISECONDS],
		.communication = m[COMMUNICATION],
		.hidden = m[HIDDEN],
		.exposed = m[EXPOSED] };
	if (run->ranks < 1 || !(run->rate > 0))
		return err_fail(err, EXIT_DATA,
			"scaling: couldn't use %s: it has %d ranks and a rate of %g, and both must be above 0",
			name, run->ranks, run->rate);
	return 0;
}

int scaling_read(int dirfd, int skip, struct scaling_run *run, struct err *err)
{
	AUTO_FREE int *attempts = NULL;
	struct samples samples = { 0 };
	size_t count;
	char name[64];
	if (curve_attempts(dirfd, &attempts, &count, err) < 0)
		return -1;
	if (count == 0)
		return err_fail(err, EXIT_DATA,
			"scaling: there is no metrics-N.jsonl: give the --ckpt-dir of a run");
	snprintf(name, sizeof name, "metrics-%d.jsonl", attempts[count - 1]);
	int rc = read_lines(dirfd, name, &samples, err);
	if (rc == 0)
		rc = summarise(&samples, (size_t)skip, name, run, err);
	for (int i = 0; i < COLUMNS; i++)
		free(samples.values[i]);
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

/* ---- the plot ---- */

/* The axes' upper ends; both begin at 0. */
struct axes {
	double ranks, speedup;
};

static struct axes axes_of(const struct scaling_run *runs, size_t count)
{
	struct axes axes = { 0, 0 };
	for (size_t i = 0; i < count; i++) {
		axes.ranks = fmax(axes.ranks, runs[i].ranks);
		axes.speedup = fmax(axes.speedup, scaling_speedup(runs, i));
	}
	axes.speedup = fmax(axes.speedup, axes.ranks / runs[0].ranks);
	return axes;
}

static double at_x(const struct axes *axes, double ranks)
{
	return PLOT_LEFT + ranks / axes->ranks * (PLOT_RIGHT - PLOT_LEFT);
}

static double at_y(const struct axes *axes, double speedup)
{
	return PLOT_BOTTOM - speedup / axes->speedup * (PLOT_BOTTOM - PLOT_TOP);
}

static void plot_axes(const struct scaling_run *runs, size_t count, const struct axes *axes,
	FILE *out)
{
	fprintf(out, "<path d=\"M%d %dV%dH%d\" fill=\"none\" stroke=\"#444\"/>\n", PLOT_LEFT, PLOT_TOP,
		PLOT_BOTTOM, PLOT_RIGHT);
	fprintf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">ranks</text>\n",
		(PLOT_LEFT + PLOT_RIGHT) / 2, PLOT_HEIGHT - 10);
	fprintf(out, "<text x=\"%d\" y=\"%d\">speedup: measured, and perfect (dashed)</text>\n",
		PLOT_LEFT, PLOT_TOP - 12);
	for (size_t i = 0; i < count; i++) {
		double perfect = (double)runs[i].ranks / runs[0].ranks;
		fprintf(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%d</text>\n",
			at_x(axes, runs[i].ranks), PLOT_BOTTOM + 18, runs[i].ranks);
		fprintf(out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.3g</text>\n", PLOT_LEFT - 6,
			at_y(axes, perfect) + 4, perfect);
	}
	fprintf(out,
		"<path d=\"M%d %dL%.1f %.1f\" fill=\"none\" stroke=\"#888\" stroke-dasharray=\"6 4\"/>\n",
		PLOT_LEFT, PLOT_BOTTOM, at_x(axes, axes->ranks), at_y(axes, axes->ranks / runs[0].ranks));
}

static void plot_point(double x, double y, double efficiency, FILE *out)
{
	fprintf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"#06c\"/>\n", x, y);
	fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%.1f%%</text>\n", x - 6, y - 6,
		100 * efficiency);
}

void scaling_plot(const struct scaling_run *runs, size_t count, FILE *out)
{
	const struct axes axes = axes_of(runs, count);
	fprintf(out,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
		"font-family=\"sans-serif\" font-size=\"13\">\n"
		"<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
		PLOT_WIDTH, PLOT_HEIGHT);
	plot_axes(runs, count, &axes, out);
	fprintf(out, "<polyline fill=\"none\" stroke=\"#06c\" stroke-width=\"2\" points=\"");
	for (size_t i = 0; i < count; i++)
		fprintf(out, "%s%.1f,%.1f", i ? " " : "", at_x(&axes, runs[i].ranks),
			at_y(&axes, scaling_speedup(runs, i)));
	fprintf(out, "\"/>\n");
	for (size_t i = 0; i < count; i++)
		plot_point(at_x(&axes, runs[i].ranks), at_y(&axes, scaling_speedup(runs, i)),
			scaling_efficiency(runs, i), out);
	fprintf(out, "</svg>\n");
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
