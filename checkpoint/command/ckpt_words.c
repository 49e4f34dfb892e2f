/* SPDX-License-Identifier: Apache-2.0 */
/* Too many or too few words are a usage error (argp_error exits). */
#include "checkpoint/command/ckpt_words.h"

error_t ckpt_words_parse(int key, char *arg, struct argp_state *state)
{
	struct ckpt_words *words = state->input;
	switch (key) {
	case 'j': words->json = true; return 0;
	case ARGP_KEY_ARG:
		if ((int)state->arg_num >= words->most)
			argp_error(state, "%s: give no more than %s", arg, words->what);
		words->word[state->arg_num] = arg;
		return 0;
	case ARGP_KEY_END:
		if ((int)state->arg_num < words->least)
			argp_error(state, "give %s", words->what);
		return 0;
	default: return ARGP_ERR_UNKNOWN;
	}
}
