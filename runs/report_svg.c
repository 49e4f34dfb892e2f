/* SPDX-License-Identifier: Apache-2.0 */
/* The loss of runs as an image for documents. */
#include "config.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
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

static void write_plots(const json_t *runs, FILE *out)
{
	size_t i;
	const json_t *run;
	const char *separator = "plot";
	json_array_foreach(runs, i, run)
	{
		const json_t *series = json_object_get(run, "series");
		const char *name = json_string_value(json_object_get(run, "name"));
		fprintf(out, "%s $loss%zu using 1:2 with lines linecolor '%s' title ", separator, i,
			colours[i % 8]);
		write_quoted(name, out);
		separator = ",";
		if (json_array_size(json_object_get(series, "validation_loss")) == 0)
			continue;
		fprintf(out, ", $valid%zu using 1:2 with points pointtype 7 linecolor '%s' title ", i,
			colours[i % 8]);
		write_quoted("validation", out);
	}
	fputc('\n', out);
}

static int write_script(const struct run *runs, const json_t *report, FILE *out, struct err *err)
{
	const json_t *list = json_object_get(report, "runs"), *run;
	size_t i;
	fputs("set terminal svg size 800,420 noenhanced background '#ffffff'\n", out);
	json_array_foreach(list, i, run)
	{
		const json_t *series = json_object_get(run, "series");
		if (json_array_size(json_object_get(series, "loss")) == 0)
			return err_fail(err, EXIT_DATA,
				"report: couldn't draw %s: none of its steps has a loss", runs[i].dir.path);
		write_block(json_object_get(series, "loss"), "loss", i, out);
		write_block(json_object_get(series, "validation_loss"), "valid", i, out);
		write_resumes(&runs[i], i, out);
	}
	fputs("set xlabel 'step'\nset ylabel 'loss'\nset border 3\nset tics nomirror\n"
		  "set xrange [0:*]\n",
		out);
	write_plots(list, out);
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
