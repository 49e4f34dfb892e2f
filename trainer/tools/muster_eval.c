/* SPDX-License-Identifier: Apache-2.0 */
/* muster-eval MODEL DATA... tells a model's loss on token files. It computes as muster-train
 * validates: the same model, operations and sum, so the same bits. */
#include "config.h"

#include <argp.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/convert/model_source.h"
#include "common/record.h"
#include "common/auto.h"
#include "common/build_id.h"
#include "common/bytes.h"
#include "common/clock.h"
#include "common/descriptors.h"
#include "common/io.h"
#include "common/number.h"
#include "common/progress.h"
#include "trainer/generate/spelling.h"
#include "trainer/run/arena_source.h"
#include "trainer/run/threads.h"
#include "trainer/run/validate.h"

struct arguments {
	const char *model, *isa;
	char *data; /* between commas */
	int64_t sequences, context, microbatch, threads;
	bool json, quiet;
};

struct eval {
	const struct arguments *given;
	struct model_source *source;
	struct dataset *data;
	struct ops *ops;
	struct model *model;
	float *weights;
	struct comm *comm; /* of one rank */
	int positions, threads;
	uint64_t sequences;
	struct progress progress;
	double loss, seconds;
};

enum { KEY_CONTEXT = 256, KEY_MICROBATCH, KEY_THREADS, KEY_ISA, KEY_JSON };

static const struct argp_option options[] = {
	{ "sequences", 'n', "N", 0, "use the first N sequences only (default: all)", 0 },
	{ "context", KEY_CONTEXT, "N", 0, "tokens of a sequence (default: the model's context)", 0 },
	{ "microbatch", KEY_MICROBATCH, "N", 0,
		"sequences that are computed at once (default: 4, as in muster-train)", 0 },
	{ "threads", KEY_THREADS, "N", 0, "threads that compute (default: one for each CPU)", 0 },
	{ "cpu-isa", KEY_ISA, "auto|avx512|avx2|default", 0,
		"pins the instruction set, so that different CPUs give the same bits (default: auto)", 0 },
	{ "json", KEY_JSON, NULL, 0, "print one JSON object", 0 },
	{ "quiet", 'q', NULL, 0, "show no progress (default: on a terminal)", 0 },
	{ 0 },
};

/* The first argument is the model; the others become one list of files. */
static void take_word(struct arguments *given, char *word, struct argp_state *state)
{
	char *data = NULL;
	if (!given->model) {
		given->model = word;
		return;
	}
	if (asprintf(&data, "%s%s%s", given->data ? given->data : "", given->data ? "," : "", word) < 0)
		argp_failure(state, EXIT_FAULT, 0, "out of memory");
	free(given->data);
	given->data = data;
}

static error_t parse_one(int key, char *arg, struct argp_state *state)
{
	struct arguments *given = state->input;
	switch (key) {
	case 'n': given->sequences = number_option(state, "sequences", arg, 1, INT64_MAX); return 0;
	case KEY_CONTEXT: given->context = number_option(state, "context", arg, 1, INT32_MAX); return 0;
	case KEY_MICROBATCH:
		given->microbatch = number_option(state, "microbatch", arg, 1, 65536);
		return 0;
	case KEY_THREADS: given->threads = number_option(state, "threads", arg, 1, 4096); return 0;
	case KEY_ISA: given->isa = arg; return 0;
	case KEY_JSON: given->json = true; return 0;
	case 'q': given->quiet = true; return 0;
	case ARGP_KEY_ARG: take_word(given, arg, state); return 0;
	case ARGP_KEY_END:
		if (!given->data)
			argp_error(state, "give a model and the token files to evaluate it on");
		return 0;
	default: return ARGP_ERR_UNKNOWN;
	}
}

/* ---- the work ---- */

static int open_data(struct eval *e, struct err *err)
{
	const int64_t context = e->source->config.context, asked = e->given->context;
	if (asked > context)
		return err_fail(err, EXIT_USAGE,
			"--context %" PRId64 " is more than the model's %" PRId64 " positions: give %" PRId64
			" or less",
			asked, context, context);
	e->positions = (int)(asked ? asked : context);
	e->data = dataset_open_tokens(e->given->data, e->positions, err);
	if (!e->data)
		return -1;
	const uint64_t all = dataset_samples(e->data), wanted = (uint64_t)e->given->sequences;
	e->sequences = wanted && wanted < all ? wanted : all;
	return 0;
}

/* A pass without a backward one needs no more of a block than its input. */
static int load_model(struct eval *e, struct err *err)
{
	struct model_config config = arena_source_model(&e->source->config);
	config.recompute = RECOMPUTE_BLOCK;
	e->model = model_create(&config, err);
	e->ops = e->model ? ops_cpu_create(false, err) : NULL;
	if (!e->ops || model_prepare(e->model, e->ops, (int)e->given->microbatch, err) < 0)
		return -1;
	const struct tensor_table *table = model_tensors(e->model);
	const size_t bytes = table->elements * sizeof *e->weights;
	e->weights = e->ops->device->alloc(e->ops->device, bytes);
	if (!e->weights)
		return err_set(err, "model: no memory for %zu MB of weights", bytes >> 20);
	if (arena_source_fill(e->source, table, e->weights, err) < 0)
		return -1;
	model_bind(e->model, e->weights, e->weights);
	return 0;
}

static void show_progress(void *arg, int samples)
{
	struct eval *e = arg;
	progress_add(&e->progress, (uint64_t)samples * (uint64_t)e->positions);
}

static int measure(struct eval *e, struct err *err)
{
	const struct ident ident = { .world_size = 1,
		.local_world_size = 1,
		.node_count = 1,
		.node = "this node",
		.source = "single" };
	e->comm = comm_open(&ident, NULL, NULL, 60, err);
	struct validation *validation = e->comm
		? validation_create(e->data, e->model, e->comm, e->sequences, (int)e->given->microbatch,
			(int)e->source->config.vocabulary, err)
		: NULL;
	if (!validation)
		return -1;
	validation_set_watch(validation, show_progress, e);
	progress_begin(&e->progress, "eval", e->sequences * (uint64_t)e->positions, e->given->quiet);
	e->progress.unit = "tokens";
	const double began = clock_now();
	const int rc = validation_loss(validation, &e->loss, err);
	e->seconds = clock_now() - began;
	progress_end(&e->progress);
	validation_destroy(validation);
	if (rc == 0 && !isfinite((float)e->loss))
		return err_fail(err, EXIT_DATA,
			"the loss is %g: weights of the model are not finite, or too large: take an earlier "
			"checkpoint",
			e->loss);
	return rc;
}

/* ---- the result ---- */

static uint64_t tokens_of(const struct eval *e)
{
	return e->sequences * (uint64_t)e->positions;
}

/* Tokens at the ends of files that no whole sequence predicts. The first one of a file is never
 * predicted. */
static uint64_t left_out(const struct eval *e)
{
	return dataset_tokens(e->data) - dataset_shards(e->data)
		- dataset_samples(e->data) * (uint64_t)e->positions;
}

static bool tokens_are_bytes(const struct eval *e)
{
	return e->source->config.vocabulary == SPELLING_BYTES;
}

static int print_text(const struct eval *e, struct err *err)
{
	printf("loss           %.6f nats per token\n", e->loss);
	printf("perplexity     %.6g\n", exp(e->loss));
	if (tokens_are_bytes(e))
		printf("bits per byte  %.6f\n", e->loss / M_LN2);
	printf("tokens         %" PRIu64 ", %" PRIu64 " of %" PRIu64 " sequences of %d\n", tokens_of(e),
		e->sequences, dataset_samples(e->data), e->positions);
	if (left_out(e))
		printf("left out       %" PRIu64 " tokens at the end of %s, which fill no sequence\n",
			left_out(e), dataset_shards(e->data) > 1 ? "files" : "the file");
	printf("speed          %.0f tokens/s with %d thread%s\n", (double)tokens_of(e) / e->seconds,
		e->threads, e->threads == 1 ? "" : "s");
	return io_flush_output(err);
}

/* The loss has the form that it has in the metrics of muster-train. */
static json_t *result_of(const struct eval *e)
{
	char bits[9];
	snprintf(bits, sizeof bits, "%08x", bytes_of_float((float)e->loss));
	const double perplexity = exp(e->loss);
	json_t *result = json_pack("{s:f, s:s, s:o, s:I, s:I, s:i, s:I, s:f, s:f}", "loss",
		(double)(float)e->loss, "loss_bits", bits, "perplexity",
		isfinite(perplexity) ? json_real(perplexity) : json_null(), "tokens",
		(json_int_t)tokens_of(e), "sequences", (json_int_t)e->sequences, "context", e->positions,
		"left_out", (json_int_t)left_out(e), "seconds", e->seconds, "tokens_per_second",
		(double)tokens_of(e) / e->seconds);
	if (result && tokens_are_bytes(e))
		result = record_set(result, "bits_per_byte", json_real(e->loss / M_LN2));
	json_t *numerics = json_pack("{s:I, s:s, s:s, s:s, s:s}", "microbatch",
		(json_int_t)e->given->microbatch, "device", e->ops->name, "isa", ops_cpu_isa(), "libraries",
		ops_cpu_versions(), "build", build_id());
	return record_set(result, "numerics", numerics);
}

static int print_json(const struct eval *e, struct err *err)
{
	json_t *result = result_of(e);
	AUTO_FREE char *text = record_dump(result, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
	const bool printed = text && puts(text) >= 0;
	json_decref(result);
	return printed || ferror(stdout) ? io_flush_output(err) : err_set(err, "output: out of memory");
}

static int evaluate(struct eval *e, struct err *err)
{
	const struct ident here = { .local_world_size = 1 };
	e->threads = e->given->threads ? (int)e->given->threads : threads_default(&here);
	threads_set(e->threads);
	if (ops_cpu_pin_isa(e->given->isa, err) < 0)
		return -1;
	e->source = model_source_open_any(e->given->model, err);
	if (!e->source || open_data(e, err) < 0 || load_model(e, err) < 0 || measure(e, err) < 0)
		return -1;
	return e->given->json ? print_json(e, err) : print_text(e, err);
}

static void release(struct eval *e)
{
	comm_close(e->comm);
	if (e->weights)
		e->ops->device->release(e->ops->device, e->weights);
	model_destroy(e->model);
	if (e->ops)
		e->ops->destroy(e->ops);
	if (e->data)
		dataset_close(e->data);
	if (e->source)
		e->source->close(e->source);
}

int main(int argc, char **argv)
{
	static const struct argp argp = { .options = options,
		.parser = parse_one,
		.args_doc = "MODEL DATA...",
		.doc =
			"Prints the loss and the perplexity of the model in MODEL on token files. MODEL is a "
			"checkpoint directory (its newest checkpoint), a checkpoint's folder, a directory of "
			"Hugging Face's or a model file of llm.c. DATA is what muster-train's --data takes.\v"
			"The loss is the validation loss of muster-train on the same data.\n\nExit status: 0 "
			"done, 1 a fault, 2 wrong usage, 65 a model or data that can't be used, 69 a failing "
			"disk." };
	struct arguments given = { .microbatch = 4, .isa = "auto" };
	struct err err;
	descriptors_raise();
	argp_program_version = PACKAGE_STRING;
	argp_err_exit_status = EXIT_USAGE;
	argp_parse(&argp, argc, argv, 0, NULL, &given);
	struct eval e = { .given = &given };
	const int rc = evaluate(&e, &err);
	if (rc < 0)
		fprintf(stderr, "muster-eval: %s\n", err.text);
	release(&e);
	free(given.data);
	return rc < 0 ? (int)err.status : EXIT_OK;
}
