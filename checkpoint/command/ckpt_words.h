/* SPDX-License-Identifier: Apache-2.0 */
/* The arguments that most subcommands of muster-ckpt take: one or two words, and --json. */
#ifndef MUSTER_CKPT_WORDS_H
#define MUSTER_CKPT_WORDS_H

#include <argp.h>
#include <stdbool.h>

#define CKPT_WORDS_MOST 2

/* The first member of a subcommand's options. */
struct ckpt_words {
	int least, most;  /* number of words */
	const char *what; /* describes them in usage errors: "the checkpoint directory and the step" */
	const char *word[CKPT_WORDS_MOST]; /* NULL when not given */
	bool json;
};

/* The option row of --json. */
#define CKPT_WORDS_JSON \
	{ \
		"json", 'j', NULL, 0, "print a JSON object", 0 \
	}

/* The argp parser; state->input begins with a struct ckpt_words. A subcommand with more options has
 * its own parser, which passes on the keys that it doesn't know. */
error_t ckpt_words_parse(int key, char *arg, struct argp_state *state);

#endif
