/* SPDX-License-Identifier: Apache-2.0 */
/* The logits of a checkpoint's GPT-2, for a comparison with another implementation:
 *     model_logits FOLDER TOKENS OUTPUT
 * FOLDER is a step folder. TOKENS holds int32, whole samples of the model's context; OUTPUT gets
 * fp32 [samples, context, vocabulary]. The trainer never has logits as a whole: its head is
 * replaced by one that keeps them, and the losses that follow from them are held against the real
 * head's. */
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/load/ckpt.h"
#include "common/auto.h"
#include "common/io.h"
#include "trainer/model/model.h"

/* What the head leaves behind. */
static struct {
	void (*real)(struct ops *ops, float *losses, float *dx, float *dwte, const float *x,
		const float *wte, const int32_t *targets, int M, int C, int V, int accumulate);
	float *logits; /* [M, V] */
} head;

static void die(const char *what)
{
	fprintf(stderr, "model_logits: couldn't %s\n", what);
	exit(1);
}

static double log_sum_exp(const float *logits, int count)
{
	double most = -INFINITY, sum = 0;
	for (int v = 0; v < count; v++)
		most = fmax(most, (double)logits[v]);
	for (int v = 0; v < count; v++)
		sum += exp((double)logits[v] - most);
	return most + log(sum);
}

static void keep_logits(struct ops *ops, float *losses, float *dx, float *dwte, const float *x,
	const float *wte, const int32_t *targets, int M, int C, int V, int accumulate)
{
	head.real(ops, losses, dx, dwte, x, wte, targets, M, C, V, accumulate);
	for (int m = 0; m < M; m++) {
		float *row = head.logits + (size_t)m * (size_t)V;
		for (int v = 0; v < V; v++) {
			double sum = 0;
			for (int c = 0; c < C; c++)
				sum += (double)x[(size_t)m * (size_t)C + (size_t)c]
					* (double)wte[(size_t)v * (size_t)C + (size_t)c];
			row[v] = (float)sum;
		}
		if (fabs(log_sum_exp(row, V) - (double)row[targets[m]] - (double)losses[m]) > 1e-4)
			die("get the same loss from the logits as the trainer's head has");
	}
}

static int dimension(const struct ckpt *ckpt, const char *name)
{
	const json_t *value =
		json_object_get(json_object_get(ckpt_manifest(ckpt)->config, "identity"), name);
	if (!json_is_integer(value))
		die("find the model's dimensions in the manifest");
	return (int)json_integer_value(value);
}

static struct ckpt *open_folder(const char *path)
{
	struct ckpt_dir dir;
	struct ckpt *ckpt;
	struct err err;
	AUTO_FREE char *parent = strdup(path);
	char *slash = strrchr(parent, '/');
	if (!slash)
		die("take a folder without its directory");
	*slash = '\0';
	if (ckpt_dir_open_existing(&dir, parent, &err) < 0
		|| ckpt_open_folder(&dir, slash + 1, ckpt_step_of(slash + 1), 1, &ckpt, &err) < 0)
		die(err.text);
	ckpt_dir_close(&dir);
	return ckpt;
}

static float *read_weights(struct ckpt *ckpt, const struct tensor_table *table, struct ops *ops)
{
	struct err err;
	float *weights = ops->device->alloc(ops->device, table->elements * sizeof *weights);
	if (!weights || ckpt_tensor_count(ckpt) != (size_t)table->count)
		die("find exactly the model's tensors");
	for (int i = 0; i < table->count; i++) {
		const struct tensor *row = &table->rows[i];
		const struct safetensors_tensor *found = ckpt_tensor_find(ckpt, row->name);
		if (!found || found->dtype != SAFETENSORS_F32
			|| ckpt_read_tensor(ckpt, row->name, 0, row->count, weights + row->offset, &err) != 0)
			die(row->name);
	}
	return weights;
}

static void write_logits(const char *path, const float *logits, size_t count)
{
	AUTO_FCLOSE FILE *file = fopen(path, "wb");
	if (!file || fwrite(logits, sizeof *logits, count, file) != count)
		die("write the logits");
}

int main(int argc, char **argv)
{
	struct err err;
	AUTO_FREE char *tokens = NULL;
	size_t size;
	if (argc != 4)
		die("start: usage: model_logits FOLDER TOKENS OUTPUT");
	struct ckpt *ckpt = open_folder(argv[1]);
	const struct model_config config = { .kind = MODEL_GPT2,
		.layers = dimension(ckpt, "layers"),
		.width = dimension(ckpt, "width"),
		.heads = dimension(ckpt, "heads"),
		.context = dimension(ckpt, "context"),
		.vocabulary = dimension(ckpt, "vocabulary") };
	struct model *model = model_create(&config, &err);
	struct ops *ops = ops_cpu_create(false, &err);
	if (!model || !ops || io_read_file(AT_FDCWD, argv[2], 1 << 20, &tokens, &size, &err) < 0)
		die(err.text);
	const size_t positions = size / sizeof(int32_t), V = (size_t)config.vocabulary;
	struct batch batch = { .samples = (int)(positions / (size_t)config.context),
		.positions = config.context,
		.tokens = (int32_t *)(void *)tokens,
		.targets = (int32_t *)(void *)tokens };
	if (model_prepare(model, ops, batch.samples, &err) < 0)
		die(err.text);
	head.real = ops->head_loss;
	ops->head_loss = keep_logits;
	head.logits = malloc(positions * V * sizeof *head.logits);
	float *weights = read_weights(ckpt, model_tensors(model), ops);
	double loss;
	int64_t valid;
	model_bind(model, weights, weights);
	model_loss(model, &batch, &loss, &valid);
	write_logits(argv[3], head.logits, positions * V);
	ops->device->release(ops->device, weights);
	model_destroy(model);
	ops->destroy(ops);
	ckpt_close(ckpt);
	free(head.logits);
	return 0;
}
