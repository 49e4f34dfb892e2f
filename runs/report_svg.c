/* SPDX-License-Identifier: Apache-2.0 */
/* The loss of runs as an image for documents. */
#include "config.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "common/auto.h"
#include "runs/gnuplot.h"
#include "runs/report.h"

static const char *const colours[] = { "#0b63ce", "#d1495b", "#2e8b57", "#8e44ad", "#b7791f",
	"#12858d", "#7a4a2b", "#5b6570" };

/* A block of gnuplot's: the points of a series that is in the report. */
static void write_block(const json_t *points, const char *name, size_t run, FILE *out)
{
	size_t i;
	const json_t *point;
	fprintf(out, "$%s%zu <<END\n", name, run);
	json_array_foreach(points, i, point)
	{
		fprintf(out, "%" JSON_INTEGER_FORMAT " %.9g\n",
			json_integer_value(json_array_get(point, 0)),
			json_number_value(json_array_get(point, 2)));
	}
	fputs("END\n", out);
}

/* gnuplot's quotes end at a quote and at the end of a line; a name may have both. */
static void write_quoted(const char *text, FILE *out)
{
	fputc('\'', out);
	for (; *text; text++) {
		if (*text == '\'')
			fputc('\'', out);
		fputc(iscntrl((unsigned char)*text) ? ' ' : *text, out);
	}
	fputc('\'', out);
}

static void write_resumes(const struct run *run, size_t i, FILE *out)
{
	for (size_t n = 1; n < run->attempts; n++)
		if (run->rows[n].from >= 0)
			fprintf(out,
				"set arrow from first %" PRId64 ", graph 0 to first %" PRId64
				", graph 1 nohead dashtype 3 linecolor '%s'\n",
				run->rows[n].from, run->rows[n].from, colours[i % 8]);
}

/* Where runs lie on each other, each further one is thinner, so that all are seen. */
static void write_line(const char *block, size_t i, size_t count, const char *title, FILE *out)
{
	fprintf(out, "$%s%zu using 1:2 with lines linewidth %zu linecolor '%s' title ", block, i,
		2 * (count - i) - 1, colours[i % 8]);
	write_quoted(title, out);
}

static void write_losses(const struct run *runs, const json_t *list, FILE *out)
{
	size_t i;
	const json_t *run;
	bool resumed = false;
	fputs("plot ", out);
	json_array_foreach(list, i, run)
	{
		const json_t *valid = json_object_get(json_object_get(run, "series"), "validation_loss");
		write_line("loss", i, json_array_size(list),
			json_string_value(json_object_get(run, "name")), out);
		fputs(", ", out);
		if (json_array_size(valid) > 0)
			fprintf(out, "$valid%zu using 1:2 with points pointtype 7 linecolor '%s' title '%s', ",
				i, colours[i % 8], "validation");
		resumed = resumed || runs[i].attempts > 1;
	}
	fputs(resumed ? "NaN with lines dashtype 3 linecolor '#5b6570' title 'resumed'\n" : "\n", out);
}

/* Below the losses: how far each further run is from the first. */
static void write_differences(const json_t *list, FILE *out)
{
	size_t i;
	const json_t *run;
	fputs("unset arrow\nunset key\nset size 1,0.3\nset origin 0,0\nset xlabel 'step'\n"
		  "set ylabel 'difference'\nset ytics autofreq\nset format y '%g'\n"
		  "stats [*:*] [*:*] $loss_difference1 using 2 nooutput\n"
		  "if (STATS_min == 0 && STATS_max == 0) { set yrange [-1:1]; set ytics (0) }\nplot ",
		out);
	json_array_foreach(list, i, run)
	{
		if (i == 0)
			continue;
		fputs(i > 1 ? ", " : "", out);
		write_line("loss_difference", i, json_array_size(list), "", out);
	}
	fputc('\n', out);
}

static int write_blocks(const struct run *runs, const json_t *list, FILE *out, struct err *err)
{
	static const char *const names[] = { "loss", "validation_loss", "loss_difference" };
	static const char *const blocks[] = { "loss", "valid", "loss_difference" };
	size_t i;
	const json_t *run;
	json_array_foreach(list, i, run)
	{
		const json_t *series = json_object_get(run, "series");
		if (json_array_size(json_object_get(series, "loss")) == 0)
			return err_fail(err, EXIT_DATA,
				"report: couldn't draw %s: none of its steps has a loss", runs[i].dir.path);
		for (size_t k = 0; k < 3; k++)
			write_block(json_object_get(series, names[k]), blocks[k], i, out);
		write_resumes(&runs[i], i, out);
	}
	return 0;
}

static bool has_differences(const json_t *list)
{
	for (size_t i = 1; i < json_array_size(list); i++) {
		const json_t *series = json_object_get(json_array_get(list, i), "series");
		if (json_array_size(json_object_get(series, "loss_difference")) == 0)
			return false;
	}
	return json_array_size(list) > 1;
}

static int write_script(const struct run *runs, const json_t *report, FILE *out, struct err *err)
{
	const json_t *list = json_object_get(report, "runs");
	fputs("set terminal svg size 800,420 noenhanced background '#ffffff'\n", out);
	if (write_blocks(runs, list, out, err) < 0)
		return -1;
	fputs("set ylabel 'loss'\nset border 3\nset tics nomirror\nset xrange [0:*]\n"
		  "set lmargin 10\n",
		out);
	const bool two = has_differences(list);
	fputs(two ? "set multiplot\nset size 1,0.7\nset origin 0,0.3\n" : "set xlabel 'step'\n", out);
	write_losses(runs, list, out);
	if (two)
		write_differences(list, out);
	return 0;
}

int report_svg(const struct run *runs, size_t count, const char *path, struct err *err)
{
	AUTO_FREE char *script = NULL;
	size_t size;
	json_t *report = report_json(runs, count, "");
	FILE *out = open_memstream(&script, &size);
	if (!report || !out) {
		json_decref(report);
		if (out)
			fclose(out);
		return err_set(err, "report: out of memory");
	}
	int rc = write_script(runs, report, out, err);
	json_decref(report);
	if (fclose(out))
		return err_set(err, "report: out of memory");
	return rc < 0 ? -1 : gnuplot_draw(script, path, err);
}
