/* SPDX-License-Identifier: Apache-2.0 */
/* muster-tokens makes a token file from text: each byte is a token, or a tokenizer makes them. */
#include "config.h"

#include <argp.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/auto.h"
#include "common/descriptors.h"
#include "common/err.h"
#include "common/io.h"
#include "common/number.h"
#include "common/progress.h"
#include "text/text_encoder.h"
#include "trainer/data/token_shards.h"
#include "trainer/tools/text_input.h"

struct options {
	const char *output, *validation_output, *tokenizer, *separator, *field;
	int64_t shard_size; /* tokens; 0: one file */
	double fraction;    /* of the text, for validation; 0: `bytes` counts */
	uint64_t bytes;
	bool validation, force, quiet;
	char **inputs; /* none: standard input */
	int input_count;
};

/* The state of the work. */
struct work {
	const struct options *options;
	struct token_shards *training;
	struct token_writer *validation; /* NULL without --validation */
	struct tokenizer *tokenizer;     /* NULL: bytes */
	struct text_encoder *encoder;
	const char *input; /* the name of what is read */
	int32_t separator; /* -1: none */
	uint64_t expected; /* bytes of all inputs; 0: not known */
	struct progress progress;
};

static volatile sig_atomic_t caught;

static void catch (int signal_number)
{
	caught = signal_number;
}

/* Without SA_RESTART, so that a signal also ends a read from a silent terminal or pipe. */
static void catch_signals(void)
{
	static const int signals[] = { SIGINT, SIGTERM, SIGHUP };
	struct sigaction action = { .sa_handler = catch };
	sigemptyset(&action.sa_mask);
	for (int i = 0; i < 3; i++)
		sigaction(signals[i], &action, NULL);
}

/* "0.1" is a fraction; "100000", "64K", "2M" and "1G" are bytes. */
static int parse_validation(const char *text, struct options *options)
{
	int64_t bytes;
	options->validation = true;
	if (strchr(text, '.'))
		return number_real(text, 0, 1, &options->fraction) && options->fraction > 0
				&& options->fraction < 1
			? 0
			: -1;
	if (!number_bytes(text, 1, INT64_MAX, &bytes))
		return -1;
	options->bytes = (uint64_t)bytes;
	return 0;
}

static const struct argp_option option_rows[] = {
	{ "output", 'o', "FILE", 0,
		"the token file to write; needed. A name that ends in .u16 gets raw uint16 tokens, any "
		"other the header of llm.c in front",
		0 },
	{ "validation", 'v', "SIZE", 0,
		"split off the end of the text for validation: a fraction such as 0.1, or a number of "
		"bytes such as 100000 or 64K (default: nothing)",
		0 },
	{ "validation-output", 'V', "FILE", 0, "where that goes; needed with --validation", 0 },
	{ "tokenizer", 't', "FILE", 0,
		"a tokenizer.json of Hugging Face's with byte-level BPE, or the directory that it lies in "
		"(default: each byte is a token)",
		0 },
	{ "separator", 's', "TOKEN", 0,
		"the token to put after each document, such as '<|endoftext|>' (default: none)", 0 },
	{ "field", 'F', "NAME", 0,
		"each line of a FILE is a JSON object, whose member NAME has a document, such as \"text\" "
		"(default: a FILE is one document)",
		0 },
	{ "shard-size", 'S', "TOKENS", 0,
		"write several files of at most so many tokens: those of train.bin are train_000001.bin, "
		"train_000002.bin and so on (default: one file)",
		0 },
	{ "force", 'f', NULL, 0, "replace files that exist (default: refuse)", 0 },
	{ "quiet", 'q', NULL, 0,
		"no progress and no summary (default: a summary, and progress on a terminal)", 0 },
	{ 0 },
};

static void check_options(const struct options *options, struct argp_state *state)
{
	if (!options->output)
		argp_error(state, "--output is missing: give the token file to write");
	if (options->validation != !!options->validation_output)
		argp_error(state, "--validation and --validation-output go together");
	if (options->separator && !options->tokenizer)
		argp_error(state, "--separator is a token of --tokenizer: give both");
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	struct options *options = state->input;
	switch (key) {
	case 'o': options->output = arg; return 0;
	case 'V': options->validation_output = arg; return 0;
	case 't': options->tokenizer = arg; return 0;
	case 's': options->separator = arg; return 0;
	case 'F': options->field = arg; return 0;
	case 'S':
		if (!number_whole(arg, 1, INT32_MAX, &options->shard_size))
			argp_error(state, "--shard-size=%s is no number of tokens from 1 to %d", arg,
				INT32_MAX);
		return 0;
	case 'f': options->force = true; return 0;
	case 'q': options->quiet = true; return 0;
	case 'v':
		if (parse_validation(arg, options) < 0)
			argp_error(state,
				"--validation=%s is neither a fraction between 0 and 1, such as 0.1, nor a number "
				"of bytes, such as 100000 or 64K",
				arg);
		return 0;
	case ARGP_KEY_ARGS:
		options->inputs = state->argv + state->next;
		options->input_count = state->argc - state->next;
		return 0;
	case ARGP_KEY_END: check_options(options, state); return 0;
	default: return ARGP_ERR_UNKNOWN;
	}
}

/* The number of `total` tokens that go to validation. */
static uint64_t validation_share(const struct options *options, uint64_t total)
{
	uint64_t share =
		options->fraction > 0 ? (uint64_t)((double)total * options->fraction) : options->bytes;
	return share < total ? share : total;
}

static int check_count(const struct work *work, uint64_t total, struct err *err)
{
	uint64_t share = validation_share(work->options, total);
	const char *name = work->options->output;
	uint64_t count = total - share, most = token_shards_most(work->training);
	if (count <= most && work->validation) {
		name = work->options->validation_output;
		count = share;
		most = token_writer_most(work->validation);
	}
	if (count <= most)
		return 0;
	return err_fail(err, EXIT_DATA,
		"text: couldn't put %" PRIu64
		" tokens or more into %s: its header counts in an int32, so %" PRIu64
		" at most; --shard-size writes several files",
		count, name, most);
}

/* Adds up the sizes, so that a text that is too long is refused before it is read. 0 when an input
 * is no regular file. */
static uint64_t total_size(const struct options *options)
{
	uint64_t total = 0;
	for (int i = 0; i < options->input_count; i++) {
		struct stat st;
		if (strcmp(options->inputs[i], "-") == 0 || stat(options->inputs[i], &st) < 0
			|| !S_ISREG(st.st_mode))
			return 0;
		total += (uint64_t)st.st_size;
	}
	return total;
}

static int take_ids(void *arg, const int32_t *ids, size_t count, struct err *err)
{
	struct work *work = arg;
	return check_count(work, token_shards_tokens(work->training) + count, err) < 0
		? -1
		: token_shards_add_ids(work->training, ids, count, err);
}

static int add_text(void *arg, const char *text, size_t size, struct err *err)
{
	struct work *work = arg;
	if (work->encoder)
		return text_encoder_add(work->encoder, text, size, err) < 0
			? err_prefix(err, "%s", work->input)
			: 0;
	return check_count(work, token_shards_tokens(work->training) + size, err) < 0
		? -1
		: token_shards_add(work->training, (const unsigned char *)text, size, err);
}

static int end_document(void *arg, struct err *err)
{
	struct work *work = arg;
	return work->encoder ? text_encoder_end_document(work->encoder, err) : 0;
}

static void count_bytes(void *arg, size_t bytes)
{
	struct work *work = arg;
	progress_add(&work->progress, bytes);
}

static int add_input(struct work *work, const char *name, struct err *err)
{
	const struct text_taker taker = { add_text, end_document, count_bytes, work, &caught };
	work->input = strcmp(name, "-") == 0 ? "standard input" : name;
	if (text_input_read(name, work->options->field, &taker, err) < 0)
		return -1;
	return work->encoder && text_encoder_flush(work->encoder, err) < 0
		? err_prefix(err, "%s", work->input)
		: 0;
}

static int add_inputs(struct work *work, struct err *err)
{
	const struct options *options = work->options;
	if (options->input_count == 0)
		return add_input(work, "-", err);
	for (int i = 0; i < options->input_count; i++)
		if (add_input(work, options->inputs[i], err) < 0)
			return -1;
	return 0;
}

static int split(struct work *work, struct err *err)
{
	uint64_t total = token_shards_tokens(work->training);
	uint64_t share = validation_share(work->options, total);
	if (total == 0)
		return err_fail(err, EXIT_DATA, "text: couldn't make %s: the text is empty",
			work->options->output);
	if (!work->validation)
		return 0;
	if (share == 0 || share == total)
		return err_fail(err, EXIT_DATA,
			"text: couldn't split off %" PRIu64 " of %" PRIu64
			" tokens for validation: both files need some",
			share, total);
	return token_shards_move_tail(work->training, work->validation, share, err);
}

/* The training file comes last: where it exists, the validation file exists too. */
static int commit(struct work *work, struct err *err)
{
	if (work->validation && token_writer_commit(work->validation, err) < 0)
		return -1;
	return token_shards_commit(work->training, err);
}

static int32_t vocabulary_of(const struct work *work)
{
	return work->tokenizer ? tokenizer_vocabulary(work->tokenizer) : 256;
}

static int open_outputs(struct work *work, struct err *err)
{
	const struct options *options = work->options;
	const int32_t vocabulary = vocabulary_of(work);
	work->training = token_shards_create(options->output, (uint64_t)options->shard_size, vocabulary,
		options->force, err);
	if (!work->training || !options->validation)
		return work->training ? 0 : -1;
	work->validation =
		token_writer_create(options->validation_output, vocabulary, options->force, err);
	if (!work->validation)
		return -1;
	if (token_shards_have(work->training, work->validation))
		return err_fail(err, EXIT_USAGE, "text: --output and --validation-output name one file");
	return 0;
}

static int open_tokenizer(struct work *work, struct err *err)
{
	const struct options *options = work->options;
	if (!options->tokenizer)
		return 0;
	work->tokenizer = tokenizer_open(options->tokenizer, err);
	if (!work->tokenizer)
		return -1;
	if (options->separator)
		work->separator = tokenizer_find(work->tokenizer, options->separator);
	if (options->separator && work->separator < 0)
		return err_fail(err, EXIT_USAGE, "tokenizer: %s has no token \"%s\" for --separator",
			options->tokenizer, options->separator);
	work->encoder = text_encoder_create(work->tokenizer, work->separator, take_ids, work);
	return work->encoder ? 0 : err_set(err, "tokenizer: out of memory");
}

static int make_tokens(struct work *work, struct err *err)
{
	if (open_tokenizer(work, err) < 0 || open_outputs(work, err) < 0)
		return -1;
	if (work->expected && !work->encoder && !work->options->field
		&& check_count(work, work->expected, err) < 0)
		return -1;
	if (add_inputs(work, err) < 0 || split(work, err) < 0)
		return -1;
	return commit(work, err);
}

static void summarize(const struct work *work)
{
	const size_t files = token_shards_count(work->training);
	const char *data = token_shards_pattern(work->training);
	fprintf(stderr, "muster-tokens: %" PRIu64 " tokens in %s", token_shards_tokens(work->training),
		data);
	if (work->options->shard_size)
		fprintf(stderr, " (%zu file%s)", files, files == 1 ? "" : "s");
	if (work->validation)
		fprintf(stderr, ", %" PRIu64 " in %s", token_writer_tokens(work->validation),
			work->options->validation_output);
	if (work->tokenizer)
		fprintf(stderr, " (%s: vocabulary %" PRId32 ")\n", work->options->tokenizer,
			tokenizer_vocabulary(work->tokenizer));
	else
		fputs(" (bytes: vocabulary 256)\n", stderr);
	const char *quote = files > 1 ? "'" : "";
	progress_next("muster-train --data %s%s%s --vocabulary %" PRId32 " --ckpt-dir run1", quote,
		data, quote, vocabulary_of(work));
}

static int run(const struct options *options)
{
	struct err err;
	struct work work = { .options = options, .separator = -1, .expected = total_size(options) };
	progress_begin(&work.progress, "tokens", work.expected, options->quiet);
	int rc = make_tokens(&work, &err);
	progress_end(&work.progress);
	if (rc < 0)
		fprintf(stderr, "muster-tokens: %s\n", err.text);
	else if (!options->quiet)
		summarize(&work);
	token_writer_destroy(work.validation);
	token_shards_destroy(work.training);
	text_encoder_destroy(work.encoder);
	tokenizer_close(work.tokenizer);
	return rc < 0 ? (int)err.status : EXIT_OK;
}

int main(int argc, char **argv)
{
	static const struct argp argp = { .options = option_rows,
		.parser = parse_option,
		.args_doc = "[FILE...]",
		.doc =
			"Makes a token file for muster-train from text: the FILEs one after the other, or "
			"standard input (also '-').\vEach byte is a token, so the vocabulary is 256, unless "
			"--tokenizer names another. The files appear under their names only when they are "
			"whole and durable.\n\nExit status: 0 done, 1 a fault, 2 wrong usage, 65 a text that "
			"can't be read or used, 69 a full or failing disk." };
	struct options options = { 0 };
	descriptors_raise();
	argp_program_version = PACKAGE_STRING;
	argp_err_exit_status = EXIT_USAGE;
	argp_parse(&argp, argc, argv, 0, NULL, &options);
	catch_signals();
	int status = run(&options);
	if (caught && status != EXIT_OK) {
		signal(caught, SIG_DFL);
		raise(caught);
	}
	return status;
}
