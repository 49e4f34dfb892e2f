/* SPDX-License-Identifier: Apache-2.0 */
/* muster-curve DIR: prints the merged loss curve of a run. */
#include <argp.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "common/auto.h"
#include "common/err.h"
#include "trainer/curve.h"
#include "config.h"

static error_t parse_one(int key, char *arg, struct argp_state *state)
{
	const char **folder = state->input;
	if (key == ARGP_KEY_ARG && !*folder)
		*folder = arg;
	else if (key == ARGP_KEY_ARG || key == ARGP_KEY_NO_ARGS)
		argp_error(state, "give one checkpoint directory");
	else
		return ARGP_ERR_UNKNOWN;
	return 0;
}

int main(int argc, char **argv)
{
	const char *folder = NULL;
	struct argp argp = { .parser = parse_one, .args_doc = "DIR", .doc = "Prints the loss curve of the run in DIR, merged "
		"over its attempts.\vOne line a step: step, bits of the loss, loss, bits of the gradient norm, norm, and where "
		"there was a validation its bits and value. Steps that a later attempt did again are printed once." };
	struct err err;
	struct curve curve;
	argp_program_version = PACKAGE_STRING;
	argp_err_exit_status = EXIT_USAGE;
	argp_parse(&argp, argc, argv, 0, NULL, &folder);
	AUTO_CLOSE int dirfd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dirfd < 0) {
		fprintf(stderr, "muster-curve: couldn't open the folder %s: %m\n", folder);
		return EXIT_DATA;
	}
	if (curve_read(dirfd, &curve, &err) < 0) {
		fprintf(stderr, "muster-curve: %s\n", err.text);
		return (int)err.status;
	}
	if (curve.attempts == 0) {
		fprintf(stderr, "muster-curve: %s holds no metrics-N.jsonl: give the --ckpt-dir of a run\n", folder);
		return EXIT_DATA;
	}
	curve_print(&curve, stdout);
	curve_clear(&curve);
	return fflush(stdout) == 0 ? EXIT_OK : EXIT_FAULT;
}
