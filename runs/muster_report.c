/* SPDX-License-Identifier: Apache-2.0 */
/* muster-report DIR… makes one page of HTML out of runs: curves, attempts, and what interruptions
 * cost. */
#include "config.h"

#include <argp.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/auto.h"
#include "common/descriptors.h"
#include "common/err.h"
#include "common/io.h"
#include "runs/report.h"
#include "runs/run.h"

#define RUNS_MAX 64

struct arguments {
	const char *folders[RUNS_MAX], *output, *title, *svg;
	size_t count;
};

enum { KEY_TITLE = 256, KEY_SVG };

static const struct argp_option options[] = {
	{ .name = "output",
		.key = 'o',
		.arg = "FILE",
		.doc = "The page (report.html); -: standard output" },
	{ .name = "title", .key = KEY_TITLE, .arg = "TEXT", .doc = "The title of the page" },
	{ .name = "svg",
		.key = KEY_SVG,
		.arg = "FILE",
		.doc = "Draws the loss into FILE for a document, with gnuplot; without -o then no page is "
			   "made" },
	{ 0 },
};

static error_t parse_one(int key, char *arg, struct argp_state *state)
{
	struct arguments *given = state->input;
	switch (key) {
	case 'o': given->output = arg; return 0;
	case KEY_TITLE: given->title = arg; return 0;
	case KEY_SVG: given->svg = arg; return 0;
	case ARGP_KEY_ARG:
		if (given->count == RUNS_MAX)
			argp_error(state, "give at most %d checkpoint directories", RUNS_MAX);
		given->folders[given->count++] = arg;
		return 0;
	case ARGP_KEY_END:
		if (given->count == 0)
			argp_error(state, "give the checkpoint directory of a run, or of several");
		return 0;
	default: return ARGP_ERR_UNKNOWN;
	}
}

static char *title_of(const struct arguments *given)
{
	char *title;
	if (given->title)
		return strdup(given->title);
	const int rc = given->count == 1 ? asprintf(&title, "The run in %s", given->folders[0])
									 : asprintf(&title, "%zu runs", given->count);
	return rc < 0 ? NULL : title;
}

static int write_page(const struct arguments *given, const json_t *report, struct err *err)
{
	const char *path = given->output ? given->output : "report.html";
	if (strcmp(path, "-") == 0)
		return report_page(report, stdout, err) < 0 ? -1 : io_flush_output(err);
	FILE *out = fopen(path, "we");
	if (!out)
		return err_fail(err, io_status(errno), "couldn't write %s: %m", path);
	if (report_page(report, out, err) < 0) {
		fclose(out);
		return -1;
	}
	const int failed = ferror(out);
	if (fclose(out) != 0 || failed)
		return err_fail(err, io_status(errno), "couldn't write %s: %m", path);
	fprintf(stderr, "muster-report: %s is written: open it in a browser\n", path);
	return 0;
}

static int make_report(const struct arguments *given, const struct run *runs, struct err *err)
{
	if (given->svg && report_svg(runs, given->count, given->svg, err) < 0)
		return -1;
	if (given->svg && !given->output)
		return 0;
	AUTO_FREE char *title = title_of(given);
	json_t *report = title ? report_json(runs, given->count, title) : NULL;
	if (!report)
		return err_set(err,
			"couldn't make the report: out of memory, or the path of a run is not UTF-8");
	const int rc = write_page(given, report, err);
	json_decref(report);
	return rc;
}

int main(int argc, char **argv)
{
	struct arguments given = { 0 };
	struct argp argp = { .options = options,
		.parser = parse_one,
		.args_doc = "DIR...",
		.doc = "Makes a page out of the runs in the checkpoint directories DIR: curves of loss, "
			   "speed and the like, the attempts with all that interrupted them, and what that "
			   "cost. It is one file that needs no network." };
	static struct run runs[RUNS_MAX];
	struct err err;
	descriptors_raise();
	argp_program_version = PACKAGE_STRING;
	argp_err_exit_status = EXIT_USAGE;
	argp_parse(&argp, argc, argv, 0, NULL, &given);
	size_t read = 0;
	int rc = 0;
	while (rc == 0 && read < given.count)
		rc = run_read(given.folders[read], &runs[read], &err), read++;
	if (rc == 0)
		rc = make_report(&given, runs, &err);
	while (read > 0)
		run_close(&runs[--read]);
	if (rc == 0)
		return EXIT_OK;
	fprintf(stderr, "muster-report: %s\n", err.text);
	return (int)err.status;
}
