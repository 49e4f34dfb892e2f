/* SPDX-License-Identifier: Apache-2.0 */
/* What most subcommands of muster-ckpt are given: one or two words, and --json. */
#ifndef MUSTER_CKPT_WORDS_H
#define MUSTER_CKPT_WORDS_H

#include <argp.h>
#include <stdbool.h>

#define CKPT_WORDS_MOST 2

/* The first member of a subcommand's options. */
struct ckpt_words {
	int least, most;                   /* how many words */
	const char *what;                  /* they are: "the checkpoint directory and the step" */
	const char *word[CKPT_WORDS_MOST]; /* NULL where there is none */
	bool json;
};

/* For the rows of options. */
#define CKPT_WORDS_JSON \
	{ \
		"json", 'j', NULL, 0, "print a JSON object", 0 \
	}

/* The parser; state->input begins with a struct ckpt_words. Another parser passes on what it does
 * not know. */
error_t ckpt_words_parse(int key, char *arg, struct argp_state *state);

#endif
