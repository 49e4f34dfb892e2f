/* SPDX-License-Identifier: Apache-2.0 */
/* muster-generate MODEL lets a model continue a text. */
#include "config.h"

#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#include "checkpoint/convert/model_source.h"
#include "common/auto.h"
#include "common/clock.h"
#include "common/descriptors.h"
#include "common/io.h"
#include "common/number.h"
#include "trainer/generate/continuation.h"
#include "trainer/generate/decoder.h"
#include "trainer/generate/spelling.h"

#define PROMPT_LIMIT ((size_t)256 << 20)

struct arguments {
	const char *model, *prompt, *prompt_file, *tokenizer_path;
	struct spelling *spelling; /* NULL with --ids */
	struct token_choice choice;
	int64_t tokens, count, threads;
	bool ids, half, quiet;
};

enum {
	KEY_PROMPT_FILE = 256,
	KEY_TOP_K,
	KEY_TOP_P,
	KEY_IDS,
	KEY_DTYPE,
	KEY_THREADS,
	KEY_TOKENIZER
};

static const struct argp_option options[] = {
	{ "prompt", 'p', "TEXT", 0, "the text to go on from (default: a line feed)", 0 },
	{ "prompt-file", KEY_PROMPT_FILE, "FILE", 0, "the same from a file; -: standard input", 0 },
	{ "tokens", 'n', "N", 0, "tokens to add (default: 256)", 0 },
	{ "count", 'c', "N", 0, "texts to write, one after the other (default: 1)", 0 },
	{ "temperature", 't', "X", 0,
		"below 1 probable tokens become more so, above 1 less; 0: always the most probable one "
		"(default: 0.8)",
		0 },
	{ "top-k", KEY_TOP_K, "N", 0, "draw from the N most probable tokens; 0: from all (default)",
		0 },
	{ "top-p", KEY_TOP_P, "X", 0,
		"draw from the most probable tokens that reach this probability together (default: 0.95)",
		0 },
	{ "seed", 's', "N", 0, "of the random numbers; the same seed writes the same text (default: 1)",
		0 },
	{ "tokenizer", KEY_TOKENIZER, "FILE", 0,
		"a tokenizer.json of Hugging Face's (default: the one in MODEL; else tokens are bytes)",
		0 },
	{ "ids", KEY_IDS, NULL, 0, "the prompt and the output are numbers of tokens", 0 },
	{ "dtype", KEY_DTYPE, "fp32|bf16", 0,
		"how weights are kept (default: fp32); bf16 is faster and rounds", 0 },
	{ "threads", KEY_THREADS, "N", 0, "threads that compute (default: one for each CPU)", 0 },
	{ "quiet", 'q', NULL, 0, "do not say on standard error how fast it was", 0 },
	{ 0 },
};

static double parse_real(const char *name, const char *text, double least, double most,
	struct argp_state *state)
{
	double value = 0;
	if (!number_real(text, least, most, &value))
		argp_error(state, "--%s=%s is no number from %g to %g", name, text, least, most);
	return value;
}

static bool parse_dtype(const char *text, struct argp_state *state)
{
	if (strcmp(text, "fp32") != 0 && strcmp(text, "bf16") != 0)
		argp_error(state, "--dtype=%s: give fp32 or bf16", text);
	return strcmp(text, "bf16") == 0;
}

static void parse_seed(const char *text, uint64_t *seed, struct argp_state *state)
{
	if (!number_u64(text, seed))
		argp_error(state, "--seed=%s is no whole number of 64 bits", text);
}

static error_t parse_one(int key, char *arg, struct argp_state *state)
{
	struct arguments *given = state->input;
	switch (key) {
	case 'p': given->prompt = arg; return 0;
	case KEY_PROMPT_FILE: given->prompt_file = arg; return 0;
	case 'n': given->tokens = number_option(state, "tokens", arg, 0, INT32_MAX); return 0;
	case 'c': given->count = number_option(state, "count", arg, 1, INT32_MAX); return 0;
	case 't': given->choice.temperature = parse_real("temperature", arg, 0, 100, state); return 0;
	case KEY_TOP_K:
		given->choice.top_k = (size_t)number_option(state, "top-k", arg, 0, INT32_MAX);
		return 0;
	case KEY_TOP_P: given->choice.top_p = parse_real("top-p", arg, 0, 1, state); return 0;
	case 's': parse_seed(arg, &given->choice.seed, state); return 0;
	case KEY_TOKENIZER: given->tokenizer_path = arg; return 0;
	case KEY_IDS: given->ids = true; return 0;
	case KEY_DTYPE: given->half = parse_dtype(arg, state); return 0;
	case KEY_THREADS: given->threads = number_option(state, "threads", arg, 1, 4096); return 0;
	case 'q': given->quiet = true; return 0;
	case ARGP_KEY_ARG:
		if (given->model)
			argp_error(state, "give one model: %s is too many", arg);
		given->model = arg;
		return 0;
	case ARGP_KEY_END:
		if (!given->model)
			argp_error(state, "give a checkpoint, or a model of Hugging Face's or llm.c's");
		if (given->prompt && given->prompt_file)
			argp_error(state, "give one of --prompt and --prompt-file");
		return 0;
	default: return ARGP_ERR_UNKNOWN;
	}
}

/* ---- the prompt ---- */

static int add_token(struct token_list *tokens, int32_t id, struct err *err)
{
	return token_list_append(tokens, &id, 1, err);
}

/* Numbers between spaces or commas. */
static int parse_ids(char *text, const struct gpt2_config *config, struct token_list *tokens,
	struct err *err)
{
	static const char between[] = " ,\t\r\n";
	char *rest;
	for (char *word = strtok_r(text, between, &rest); word; word = strtok_r(NULL, between, &rest)) {
		int64_t id;
		if (!number_whole(word, 0, config->vocabulary - 1, &id))
			return err_fail(err, EXIT_USAGE,
				"prompt: \"%.40s\" is no token: give numbers from 0 to %" PRId64, word,
				config->vocabulary - 1);
		if (add_token(tokens, (int32_t)id, err) < 0)
			return -1;
	}
	return 0;
}

static int read_stdin(char **text, size_t *size, struct err *err)
{
	char block[4096];
	FILE *all = open_memstream(text, size);
	if (!all)
		return err_set(err, "prompt: out of memory");
	for (size_t n; (n = fread(block, 1, sizeof block, stdin)) > 0;)
		fwrite(block, 1, n, all);
	const int why = errno;
	if (fclose(all))
		return err_set(err, "prompt: out of memory");
	return ferror(stdin)
		? err_fail(err, io_status(why), "prompt: couldn't read standard input: %s", strerror(why))
		: 0;
}

static int read_text(const struct arguments *given, char **text, size_t *size, struct err *err)
{
	if (!given->prompt_file) {
		const char *prompt = given->prompt ? given->prompt : "";
		*size = strlen(prompt);
		*text = strdup(prompt);
		return *text ? 0 : err_set(err, "prompt: out of memory");
	}
	if (strcmp(given->prompt_file, "-") != 0)
		return io_read_file(AT_FDCWD, given->prompt_file, PROMPT_LIMIT, text, size, err);
	return read_stdin(text, size, err);
}

static int encode(const struct arguments *given, char *text, size_t size,
	const struct gpt2_config *config, struct token_list *prompt, struct err *err)
{
	return given->ids ? parse_ids(text, config, prompt, err)
					  : spelling_encode(given->spelling, text, size, prompt, err);
}

static int read_prompt(const struct arguments *given, const struct gpt2_config *config,
	struct token_list *prompt, struct err *err)
{
	AUTO_FREE char *text = NULL;
	size_t size;
	if (read_text(given, &text, &size, err) < 0
		|| encode(given, text, size, config, prompt, err) < 0)
		return -1;
	return prompt->count ? 0 : add_token(prompt, continuation_first(config), err);
}

/* ---- the text ---- */

static int print_token(void *arg, int32_t token, struct err *err)
{
	const struct arguments *given = arg;
	size_t size;
	const char *bytes = given->ids ? NULL : spelling_bytes(given->spelling, token, &size);
	if (given->ids)
		printf("%" PRId32 " ", token);
	else if (bytes)
		fwrite(bytes, 1, size, stdout);
	return io_flush_output(err);
}

static int write_text(struct arguments *given, struct decoder *decoder, struct token_list *tokens,
	uint32_t sequence, struct err *err)
{
	const size_t prompt = tokens->count;
	for (size_t i = 0; (given->prompt || given->prompt_file) && i < prompt; i++)
		if (print_token(given, tokens->ids[i], err) < 0)
			return -1;
	if (continuation_write(decoder, &given->choice, sequence, tokens, (size_t)given->tokens,
			print_token, given, err)
		< 0)
		return -1;
	putchar('\n');
	tokens->count = prompt;
	return 0;
}

static int generate(struct arguments *given, struct decoder *decoder, struct err *err)
{
	struct token_list tokens = { 0 };
	const struct gpt2_config *config = decoder_config(decoder);
	if (!given->ids)
		given->spelling = spelling_open(given->tokenizer_path, given->model, config->vocabulary,
			", or --ids and numbers of tokens", err);
	int rc = given->ids || given->spelling ? read_prompt(given, config, &tokens, err) : -1;
	const double began = clock_now();
	for (int64_t i = 0; rc == 0 && i < given->count; i++)
		rc = write_text(given, decoder, &tokens, (uint32_t)i, err);
	const double seconds = clock_now() - began;
	if (rc == 0 && !given->quiet && given->tokens > 0)
		fprintf(stderr,
			"muster-generate: %.1f tokens a second, each of which reads %.1f MB of weights\n",
			(double)(given->tokens * given->count) / seconds,
			(double)decoder_weight_bytes(decoder) * 1e-6);
	free(tokens.ids);
	spelling_close(given->spelling);
	return rc < 0 ? -1 : io_flush_output(err);
}

static int run(struct arguments *given, struct err *err)
{
	struct model_source *source = model_source_open_any(given->model, err);
	if (!source)
		return -1;
	struct decoder *decoder = decoder_open(source, given->half, err);
	source->close(source);
	const int rc = decoder ? generate(given, decoder, err) : -1;
	decoder_close(decoder);
	return rc;
}

int main(int argc, char **argv)
{
	struct arguments given = { .choice = { .temperature = 0.8, .top_p = 0.95, .seed = 1 },
		.tokens = 256,
		.count = 1 };
	struct argp argp = { .options = options,
		.parser = parse_one,
		.args_doc = "MODEL",
		.doc = "Lets the model in MODEL go on with a text, and writes the text as it comes. MODEL "
			   "is a checkpoint directory (its newest checkpoint), a checkpoint's folder, a "
			   "directory of Hugging Face's or a model file of llm.c." };
	struct err err;
	descriptors_raise();
	argp_program_version = PACKAGE_STRING;
	argp_err_exit_status = EXIT_USAGE;
	argp_parse(&argp, argc, argv, 0, NULL, &given);
#ifdef _OPENMP
	if (given.threads)
		omp_set_num_threads((int)given.threads);
#endif
	if (run(&given, &err) == 0)
		return EXIT_OK;
	fprintf(stderr, "muster-generate: %s\n", err.text);
	return (int)err.status;
}
