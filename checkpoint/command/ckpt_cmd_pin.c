/* SPDX-License-Identifier: Apache-2.0 */
/* muster-ckpt pin and unpin: protect a checkpoint from removal, and end that. */
#include <inttypes.h>
#include <stdio.h>

#include "checkpoint/command/ckpt_cmd.h"
#include "checkpoint/command/ckpt_words.h"
#include "checkpoint/directory/pin.h"

static const struct argp_option option_rows[] = {
	CKPT_WORDS_JSON,
	{ 0 },
};

static int change(const struct ckpt_words *words,
	int (*set)(const struct ckpt_dir *, int64_t, struct err *), bool pinned)
{
	struct ckpt_place place;
	struct err err;
	if (ckpt_place_open(&place, words->word[0], words->word[1], &err) < 0)
		return ckpt_cmd_fail(&err);
	int status = EXIT_OK;
	if (set(&place.dir, ckpt_step_of(place.name), &err) < 0)
		status = ckpt_cmd_fail(&err);
	else if (words->json)
		status = ckpt_cmd_print_json(json_pack("{s:s, s:s, s:b}", "directory", place.dir.path,
			"folder", place.name, "pinned", (int)pinned));
	else
		printf("%s: %s\n", place.name, pinned ? "pinned" : "not pinned");
	ckpt_place_close(&place);
	return status == EXIT_OK ? ckpt_cmd_flush() : status;
}

int ckpt_cmd_pin(int argc, char **argv)
{
	static const struct argp argp = { .options = option_rows,
		.parser = ckpt_words_parse,
		.args_doc = "DIR STEP",
		.doc = "Pins the checkpoint of STEP in DIR: it is never removed until it is unpinned. A "
			   "training may be running." };
	struct ckpt_words words = { .least = 2,
		.most = 2,
		.what = "the checkpoint directory and the step" };
	argp_parse(&argp, argc, argv, 0, NULL, &words);
	return change(&words, pin_set, true);
}

int ckpt_cmd_unpin(int argc, char **argv)
{
	static const struct argp argp = { .options = option_rows,
		.parser = ckpt_words_parse,
		.args_doc = "DIR STEP",
		.doc = "Takes the pin of STEP in DIR away: retention may remove the checkpoint again." };
	struct ckpt_words words = { .least = 2,
		.most = 2,
		.what = "the checkpoint directory and the step" };
	argp_parse(&argp, argc, argv, 0, NULL, &words);
	return change(&words, pin_clear, false);
}
