/* SPDX-License-Identifier: Apache-2.0 */
/* muster-curve DIR prints the merged loss curve of a run. muster-curve --scaling DIR… compares runs
 * on different numbers of ranks. */
#include "config.h"

#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/auto.h"
#include "common/descriptors.h"
#include "common/err.h"
#include "common/io.h"
#include "common/number.h"
#include "common/progress.h"
#include "runs/curve.h"
#include "runs/scaling.h"

#define FOLDERS_MAX 64

struct arguments {
	const char *folders[FOLDERS_MAX], *json, *svg, *export;
	size_t count;
	bool scaling, bars, plot;
	int64_t skip;
};

enum { KEY_SCALING = 256, KEY_JSON, KEY_SVG, KEY_BARS, KEY_SKIP, KEY_PLOT, KEY_EXPORT };

static const struct argp_option options[] = {
	{ .name = "plot", .key = KEY_PLOT, .doc = "Draws the loss in the terminal, with gnuplot" },
	{ .name = "export",
		.key = KEY_EXPORT,
		.arg = "csv|jsonl",
		.doc = "Prints all that was logged, for other programs" },
	{ .name = "scaling",
		.key = KEY_SCALING,
		.doc = "Compares runs of one training on different numbers of ranks; the first is the "
			   "baseline" },
	{ .name = "json",
		.key = KEY_JSON,
		.arg = "FILE",
		.doc = "--scaling: writes the same numbers there, too" },
	{ .name = "svg",
		.key = KEY_SVG,
		.arg = "FILE",
		.doc = "--scaling: draws the speedup there, with gnuplot" },
	{ .name = "bars", .key = KEY_BARS, .doc = "--scaling: draws the efficiency" },
	{ .name = "skip",
		.key = KEY_SKIP,
		.arg = "N",
		.doc = "--scaling: steps at the start that don't count (10)" },
	{ 0 }
};

static error_t parse_one(int key, char *arg, struct argp_state *state)
{
	struct arguments *given = state->input;
	switch (key) {
	case KEY_SCALING: given->scaling = true; return 0;
	case KEY_JSON: given->json = arg; return 0;
	case KEY_PLOT: given->plot = true; return 0;
	case KEY_EXPORT:
		if (strcmp(arg, "csv") != 0 && strcmp(arg, "jsonl") != 0)
			argp_error(state, "--export %s is neither csv nor jsonl", arg);
		given->export = arg;
		return 0;
	case KEY_SVG: given->svg = arg; return 0;
	case KEY_BARS: given->bars = true; return 0;
	case KEY_SKIP:
		if (!number_whole(arg, 0, 1000000, &given->skip))
			argp_error(state, "--skip %s is no number of steps", arg);
		return 0;
	case ARGP_KEY_ARG:
		if (given->count == FOLDERS_MAX)
			argp_error(state, "give at most %d checkpoint directories", FOLDERS_MAX);
		given->folders[given->count++] = arg;
		return 0;
	case ARGP_KEY_END:
		if (given->count == 0 || (given->count > 1 && !given->scaling))
			argp_error(state, "give one checkpoint directory");
		if (!given->scaling && (given->json || given->svg || given->bars))
			argp_error(state, "--json, --svg and --bars go with --scaling");
		if (given->plot + (given->export != NULL) + given->scaling > 1)
			argp_error(state, "give one of --plot, --export and --scaling");
		return 0;
	default: return ARGP_ERR_UNKNOWN;
	}
}

static int open_folder(const char *folder, struct err *err)
{
	int dirfd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return dirfd < 0
		? err_fail(err, io_status_or(errno, EXIT_DATA), "couldn't open the folder %s: %m", folder)
		: dirfd;
}

static int print_curve(const struct arguments *given, struct err *err)
{
	const char *folder = given->folders[0];
	int rc = 0;
	struct run_table curve;
	size_t attempts;
	AUTO_CLOSE int dirfd = open_folder(folder, err);
	if (dirfd < 0 || curve_read(dirfd, &curve, &attempts, err) < 0)
		return -1;
	if (attempts == 0)
		return err_fail(err, EXIT_DATA, "%s holds no metrics-N.jsonl: give the --ckpt-dir of a run",
			folder);
	if (given->plot)
		rc = curve_plot(&curve, err);
	else if (given->export)
		rc = curve_export(&curve, strcmp(given->export, "csv") == 0 ? CURVE_CSV : CURVE_JSONL,
			stdout, err);
	else
		curve_print(&curve, stdout);
	run_table_clear(&curve);
	return rc;
}

static int write_json(const char *path, const struct scaling_run *runs, size_t count,
	struct err *err)
{
	json_t *json = scaling_json(runs, count);
	if (!json)
		return err_set(err, "couldn't write %s: out of memory", path);
	int rc = json_dump_file(json, path, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
	int why = errno;
	json_decref(json);
	return rc < 0 ? err_fail(err, io_status(why), "couldn't write %s: %s", path, strerror(why)) : 0;
}

static int print_scaling(const struct arguments *given, struct err *err)
{
	struct scaling_run runs[FOLDERS_MAX];
	for (size_t i = 0; i < given->count; i++) {
		AUTO_CLOSE int dirfd = open_folder(given->folders[i], err);
		if (dirfd < 0)
			return -1;
		if (scaling_read(dirfd, (int)given->skip, &runs[i], err) < 0)
			return err_prefix(err, "%s", given->folders[i]);
	}
	scaling_print(runs, given->count, stdout);
	if (given->bars)
		scaling_bars(runs, given->count, stdout);
	if (given->json && write_json(given->json, runs, given->count, err) < 0)
		return -1;
	return given->svg ? scaling_plot(runs, given->count, given->svg, err) : 0;
}

int main(int argc, char **argv)
{
	struct arguments given = { .skip = 10 };
	struct argp argp = { .options = options,
		.parser = parse_one,
		.args_doc = "DIR\n--scaling DIR...",
		.doc = "Prints the loss curve of the run in DIR, merged over its attempts; or how well a "
			   "training scales.\vOne line a step: step, bits of the loss, loss, bits of the "
			   "gradient norm, norm, and where there was a validation its bits and value. Steps "
			   "that a later attempt did again are printed once." };
	struct err err;
	descriptors_raise();
	argp_program_version = PACKAGE_STRING;
	argp_err_exit_status = EXIT_USAGE;
	argp_parse(&argp, argc, argv, 0, NULL, &given);
	if ((given.scaling ? print_scaling(&given, &err) : print_curve(&given, &err)) < 0
		|| io_flush_output(&err) < 0) {
		fprintf(stderr, "muster-curve: %s\n", err.text);
		return (int)err.status;
	}
	progress_next("muster-report %s", given.folders[0]);
	return EXIT_OK;
}
