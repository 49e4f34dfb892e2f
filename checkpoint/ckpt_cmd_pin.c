/* SPDX-License-Identifier: Apache-2.0 */
/* muster-ckpt pin and unpin. */
#include <inttypes.h>
#include <stdio.h>

#include "checkpoint/ckpt_cmd.h"
#include "checkpoint/pin.h"

struct options {
	const char *path, *step;
	bool json;
};

static const struct argp_option option_rows[] = {
	{ "json", 'j', NULL, 0, "print a JSON object", 0 },
	{ 0 },
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	struct options *options = state->input;
	switch (key) {
	case 'j': options->json = true; return 0;
	case ARGP_KEY_ARG:
		if (options->step)
			argp_error(state, "%s: one step at a time", arg);
		if (options->path)
			options->step = arg;
		else
			options->path = arg;
		return 0;
	case ARGP_KEY_END:
		if (!options->step)
			argp_error(state, "give the checkpoint directory and the step");
		return 0;
	default: return ARGP_ERR_UNKNOWN;
	}
}

static int change(const struct options *options, int (*set)(const struct ckpt_dir *, int64_t, struct err *), bool pinned)
{
	struct ckpt_place place;
	struct err err;
	if (ckpt_place_open(&place, options->path, options->step, &err) < 0)
		return ckpt_cmd_fail(&err);
	int status = EXIT_OK;
	if (set(&place.dir, ckpt_step_of(place.name), &err) < 0)
		status = ckpt_cmd_fail(&err);
	else if (options->json)
		status = ckpt_cmd_print_json(json_pack("{s:s, s:s, s:b}", "directory", place.dir.path, "folder", place.name, "pinned",
			(int)pinned));
	else
		printf("%s: %s\n", place.name, pinned ? "pinned" : "not pinned");
	ckpt_place_close(&place);
	return status == EXIT_OK ? ckpt_cmd_flush() : status;
}

int ckpt_cmd_pin(int argc, char **argv)
{
	static const struct argp argp = { .options = option_rows, .parser = parse_option, .args_doc = "DIR STEP",
		.doc = "Pins the checkpoint of STEP in DIR: it is never removed until it is unpinned. A training may be running." };
	struct options options = { 0 };
	argp_parse(&argp, argc, argv, 0, NULL, &options);
	return change(&options, pin_set, true);
}

int ckpt_cmd_unpin(int argc, char **argv)
{
	static const struct argp argp = { .options = option_rows, .parser = parse_option, .args_doc = "DIR STEP",
		.doc = "Takes the pin of STEP in DIR away: retention may remove the checkpoint again." };
	struct options options = { 0 };
	argp_parse(&argp, argc, argv, 0, NULL, &options);
	return change(&options, pin_clear, false);
}
