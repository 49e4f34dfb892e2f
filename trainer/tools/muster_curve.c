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
#include "trainer/tools/curve.h"
#include "trainer/tools/scaling.h"

#define FOLDERS_MAX 64

struct arguments {
	const char *folders[FOLDERS_MAX], *json, *plot;
	size_t count;
	bool scaling, bars;
	int64_t skip;
};

enum { KEY_SCALING = 256, KEY_JSON, KEY_PLOT, KEY_BARS, KEY_SKIP };

static const struct argp_option options[] = {
	{ .name = "scaling",
		.key = KEY_SCALING,
		.doc = "Compares runs of one training on different numbers of ranks; the first is the "
			   "baseline" },
	{ .name = "json",
		.key = KEY_JSON,
		.arg = "FILE",
		.doc = "--scaling: writes the same numbers there, too" },
	{ .name = "plot",
		.key = KEY_PLOT,
		.arg = "FILE",
		.doc = "--scaling: draws the speedup there, as SVG" },
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
	case KEY_PLOT: given->plot = arg; return 0;
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
		if (!given->scaling && (given->json || given->plot || given->bars))
			argp_error(state, "--json, --plot and --bars go with --scaling");
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

static int print_curve(const char *folder, struct err *err)
{
	struct curve curve;
	AUTO_CLOSE int dirfd = open_folder(folder, err);
	if (dirfd < 0 || curve_read(dirfd, &curve, err) < 0)
		return -1;
	if (curve.attempts == 0)
		return err_fail(err, EXIT_DATA, "%s holds no metrics-N.jsonl: give the --ckpt-dir of a run",
			folder);
	curve_print(&curve, stdout);
	curve_clear(&curve);
	return 0;
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

static int write_plot(const char *path, const struct scaling_run *runs, size_t count,
	struct err *err)
{
	FILE *out = fopen(path, "we");
	if (!out)
		return err_fail(err, io_status(errno), "couldn't write %s: %m", path);
	scaling_plot(runs, count, out);
	int failed = ferror(out);
	return fclose(out) != 0 || failed
		? err_fail(err, io_status(errno), "couldn't write %s: %m", path)
		: 0;
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
	return given->plot ? write_plot(given->plot, runs, given->count, err) : 0;
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
	if ((given.scaling ? print_scaling(&given, &err) : print_curve(given.folders[0], &err)) < 0
		|| io_flush_output(&err) < 0) {
		fprintf(stderr, "muster-curve: %s\n", err.text);
		return (int)err.status;
	}
	return EXIT_OK;
}
