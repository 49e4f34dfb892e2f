/* SPDX-License-Identifier: Apache-2.0 */
/* muster-ckpt import: converts a GPT-2 in another format to a checkpoint of step 0, from which
 * muster-train begins. */
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "checkpoint/command/ckpt_cmd.h"
#include "checkpoint/command/ckpt_words.h"
#include "checkpoint/convert/model_source.h"
#include "checkpoint/directory/attempts.h"
#include "checkpoint/directory/owner.h"
#include "checkpoint/directory/remove.h"
#include "common/record.h"
#include "checkpoint/save/ckpt_save.h"
#include "common/auto.h"
#include "common/progress.h"

#define CLAIM_SECONDS 10.0

static const struct argp_option option_rows[] = {
	CKPT_WORDS_JSON,
	{ 0 },
};

static const struct argp argp = { .options = option_rows,
	.parser = ckpt_words_parse,
	.args_doc = "SRC DIR",
	.doc =
		"Makes a checkpoint of step 0 in DIR from a GPT-2 in SRC: a directory of Hugging Face's "
		"(config.json and model.safetensors, in one file or in shards, in F32, F16 or BF16) or a "
		"model file of llm.c (.bin, version 3 or 5). muster-train then begins with its weights." };

/* The state of one import. */
struct import {
	const struct ckpt_words *words;
	struct model_source *source;
	struct gpt2_tensor *tensors;
	size_t count;
	uint64_t parameters;
	float *weights; /* of all tensors, one after the other */
	struct snapshot_tensor *described;
	char *config_json, *model_json;
	struct ckpt_dir dir;
	struct save_result saved;
};

/* ---- reading ---- */

static int check_finite(const struct gpt2_tensor *tensor, const float *weights, struct err *err)
{
	for (uint64_t i = 0; i < tensor->elements; i++)
		if (!isfinite(weights[i]))
			return err_fail(err, EXIT_DATA,
				"import: element %" PRIu64
				" of tensor %s is not finite; a training can't begin with it",
				i, tensor->name);
	return 0;
}

static int allocate(struct import *import, struct err *err)
{
	if (gpt2_tensors(&import->source->config, &import->tensors, &import->count, err) < 0)
		return -1;
	for (size_t i = 0; i < import->count; i++)
		import->parameters += import->tensors[i].elements;
	import->weights = malloc(import->parameters * sizeof *import->weights);
	import->described = calloc(import->count, sizeof *import->described);
	if (!import->weights || !import->described)
		return err_set(err, "import: no memory for %" PRIu64 " parameters in fp32",
			import->parameters);
	return 0;
}

static int read_weights(struct import *import, struct err *err)
{
	struct progress progress;
	float *to = import->weights;
	int result = 0;
	progress_begin(&progress, "read", import->parameters * sizeof *to, false);
	for (size_t i = 0; result == 0 && i < import->count; i++) {
		const struct gpt2_tensor *tensor = &import->tensors[i];
		result = import->source->read(import->source, tensor, to, err);
		if (result == 0)
			result = check_finite(tensor, to, err);
		import->described[i] = (struct snapshot_tensor) { .name = tensor->name,
			.dtype = SAFETENSORS_F32,
			.dims = tensor->dims,
			.shape = { tensor->shape[0], tensor->dims == 2 ? tensor->shape[1] : 0 },
			.data = to };
		to += tensor->elements;
		progress_add(&progress, tensor->elements * sizeof *to);
	}
	progress_end(&progress);
	return result;
}

static int make_texts(struct import *import, struct err *err)
{
	const struct gpt2_config *c = &import->source->config;
	json_t *config = json_pack("{s:{s:s, s:I, s:I, s:I, s:I, s:I}, s:{}, s:{}, s:b}", "identity",
		"model", "gpt2", "layers", (json_int_t)c->layers, "width", (json_int_t)c->width, "heads",
		(json_int_t)c->heads, "context", (json_int_t)c->context, "vocabulary",
		(json_int_t)c->vocabulary, "schedule", "operation", "imported", 1);
	json_t *model = gpt2_config_json(c, "float32");
	import->config_json = record_dump(config, 0);
	import->model_json = record_dump(model, JSON_INDENT(2));
	json_decref(config);
	json_decref(model);
	return import->config_json && import->model_json ? 0 : err_set(err, "import: no memory");
}

/* ---- saving ---- */

/* The directory must not hold a run, which would get a second beginning. */
static int check_empty(const struct ckpt_dir *dir, struct err *err)
{
	AUTO_FREE int64_t *steps = NULL;
	size_t count;
	struct stat st;
	if (ckpt_dir_steps(dir, &steps, &count, err) < 0)
		return -1;
	if (count > 0 || fstatat(dir->fd, ATTEMPTS_NAME, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return err_fail(err, EXIT_USAGE, "import: %s holds a run already: give a new directory",
			dir->path);
	return 0;
}

static void advance(void *arg, uint64_t done, uint64_t total)
{
	struct progress *progress = arg;
	progress->total = total;
	progress_add(progress, done - progress->done);
}

static int save(struct import *import, const char *token, struct err *err)
{
	struct progress progress;
	const struct snapshot snapshot = { .world_size = 1,
		.at = { .loss = NAN, .validation_loss = NAN },
		.config_json = import->config_json,
		.numerics_json = "{}",
		.model_json = import->model_json,
		.tensors = import->described,
		.tensor_count = import->count };
	const struct ckpt_save_options options = { .progress = advance, .arg = &progress };
	progress_begin(&progress, "write", import->parameters * sizeof *import->weights, false);
	int result = ckpt_save(&import->dir, &snapshot, token, &options, &import->saved, err);
	progress_end(&progress);
	return result;
}

static int claim_and_save(struct import *import, struct err *err)
{
	struct owner self = { 0 };
	struct err ignored;
	if (ckpt_dir_open(&import->dir, import->words->word[1], err) < 0
		|| check_empty(&import->dir, err) < 0
		|| owner_claim(&import->dir, &self, NULL, NULL, CLAIM_SECONDS, err) < 0)
		return -1;
	int result =
		remove_leftovers(&import->dir, self.token, err) < 0 ? -1 : save(import, self.token, err);
	owner_release(&import->dir, self.token, &ignored);
	return result;
}

static int run(struct import *import, struct err *err)
{
	import->source = model_source_open(import->words->word[0], err);
	if (!import->source || allocate(import, err) < 0 || read_weights(import, err) < 0
		|| make_texts(import, err) < 0)
		return -1;
	return claim_and_save(import, err);
}

static int print_result(const struct import *import)
{
	const struct gpt2_config *c = &import->source->config;
	char name[CKPT_STEP_NAME_SIZE];
	ckpt_step_name(0, name);
	if (import->words->json)
		return ckpt_cmd_print_json(json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f}",
			"directory", import->dir.path, "folder", name, "parameters",
			(json_int_t)import->parameters, "layers", (json_int_t)c->layers, "width",
			(json_int_t)c->width, "heads", (json_int_t)c->heads, "context", (json_int_t)c->context,
			"vocabulary", (json_int_t)c->vocabulary, "bytes", (json_int_t)import->saved.bytes,
			"seconds", import->saved.seconds));
	printf("%s/%s: %" PRIu64 " parameters from %s\n", import->dir.path, name, import->parameters,
		import->words->word[0]);
	printf("train it with: muster-train --ckpt-dir %s --layers %" PRId64 " --width %" PRId64
		   " --heads %" PRId64 " --context %" PRId64 " --vocabulary %" PRId64 " --data ...\n",
		import->words->word[1], c->layers, c->width, c->heads, c->context, c->vocabulary);
	return ckpt_cmd_flush();
}

int ckpt_cmd_import(int argc, char **argv)
{
	struct ckpt_words words = { .least = 2,
		.most = 2,
		.what = "the source and the checkpoint directory to make" };
	struct import import = { .words = &words, .dir.fd = -1 };
	struct err err;
	argp_parse(&argp, argc, argv, 0, NULL, &words);
	int status = run(&import, &err) < 0 ? ckpt_cmd_fail(&err) : print_result(&import);
	if (import.source)
		import.source->close(import.source);
	ckpt_dir_close(&import.dir);
	free(import.tensors);
	free(import.weights);
	free(import.described);
	free(import.config_json);
	free(import.model_json);
	return status;
}
