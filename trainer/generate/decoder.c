/* SPDX-License-Identifier: Apache-2.0 */
/* The forward pass of a GPT-2 for a few tokens at a time. It is bound by how fast the weights come
 * from memory: so they are laid out in the order in which they are read, and each thread reads one
 * run of rows. */
#include "config.h"

#include "trainer/generate/decoder.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/bytes.h"
#include "trainer/cpu/kernels.h"

#define TOKENS 32 /* that are computed at once */
#define ALIGN 64

/* A linear layer: weights [out][in], and a bias. */
struct linear {
	int in, out;
	void *w;
	float *bias; /* NULL: none */
};

struct norm {
	float *gamma, *beta;
};

struct block {
	struct norm ln_1, ln_2;
	struct linear attention, projection, fc, mlp;
	float *keys, *values; /* [heads][context][width of a head] */
};

struct decoder {
	struct gpt2_config config;
	const struct kernels *kernels;
	bool half;
	size_t length;
	struct linear head; /* its weights are the token embedding */
	float *positions;   /* [context][width] */
	struct norm ln_f;
	struct block *blocks;
	/* [TOKENS][…] */
	float *residual, *normed, *qkv, *attended, *added, *hidden;
	float *scores; /* [heads][context] */
	float mean[TOKENS], rstd[TOKENS];
};

/* ---- memory ---- */

static void *allocate(uint64_t count, size_t size)
{
	const uint64_t bytes = (count * size + ALIGN - 1) / ALIGN * ALIGN;
	void *memory = bytes <= SIZE_MAX ? aligned_alloc(ALIGN, (size_t)bytes) : NULL;
	if (memory)
		memset(memory, 0, (size_t)bytes);
	return memory;
}

static float *floats(uint64_t count)
{
	return allocate(count, sizeof(float));
}

static void free_linear(struct linear *linear)
{
	free(linear->w);
	free(linear->bias);
}

static void free_norm(struct norm *norm)
{
	free(norm->gamma);
	free(norm->beta);
}

static void free_block(struct block *block)
{
	free_norm(&block->ln_1);
	free_norm(&block->ln_2);
	free_linear(&block->attention);
	free_linear(&block->projection);
	free_linear(&block->fc);
	free_linear(&block->mlp);
	free(block->keys);
	free(block->values);
}

void decoder_close(struct decoder *d)
{
	if (!d)
		return;
	for (int64_t l = 0; d->blocks && l < d->config.layers; l++)
		free_block(&d->blocks[l]);
	free_linear(&d->head);
	free_norm(&d->ln_f);
	float *const buffers[] = { d->positions, d->residual, d->normed, d->qkv, d->attended, d->added,
		d->hidden, d->scores };
	for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++)
		free(buffers[i]);
	free(d->blocks);
	free(d);
}

/* ---- weights ---- */

/* Makes the weights of `linear` from w [in][out], or [out][in] where `laid_out` is set. */
static int take_weights(struct linear *linear, const float *w, int in, int out, bool laid_out,
	bool half)
{
	linear->in = in;
	linear->out = out;
	linear->w = allocate((uint64_t)in * (uint64_t)out, half ? 2 : 4);
	if (!linear->w)
		return -1;
#pragma omp parallel for
	for (int n = 0; n < out; n++)
		for (int k = 0; k < in; k++) {
			const size_t to = (size_t)n * (size_t)in + (size_t)k;
			const float value = w[laid_out ? to : (size_t)k * (size_t)out + (size_t)n];
			if (half)
				((uint16_t *)linear->w)[to] = bytes_float_to_bf16(value);
			else
				((float *)linear->w)[to] = value;
		}
	return 0;
}

/* Where a tensor that is kept as it is goes; NULL for weights. */
static float **place_of(struct decoder *d, struct block *block, enum gpt2_part part)
{
	switch (part) {
	case GPT2_WPE: return &d->positions;
	case GPT2_LN_1_WEIGHT: return &block->ln_1.gamma;
	case GPT2_LN_1_BIAS: return &block->ln_1.beta;
	case GPT2_C_ATTN_BIAS: return &block->attention.bias;
	case GPT2_ATTN_PROJ_BIAS: return &block->projection.bias;
	case GPT2_LN_2_WEIGHT: return &block->ln_2.gamma;
	case GPT2_LN_2_BIAS: return &block->ln_2.beta;
	case GPT2_C_FC_BIAS: return &block->fc.bias;
	case GPT2_MLP_PROJ_BIAS: return &block->mlp.bias;
	case GPT2_LN_F_WEIGHT: return &d->ln_f.gamma;
	case GPT2_LN_F_BIAS: return &d->ln_f.beta;
	default: return NULL;
	}
}

static struct linear *linear_of(struct decoder *d, struct block *block, enum gpt2_part part)
{
	switch (part) {
	case GPT2_C_ATTN_WEIGHT: return &block->attention;
	case GPT2_ATTN_PROJ_WEIGHT: return &block->projection;
	case GPT2_C_FC_WEIGHT: return &block->fc;
	case GPT2_MLP_PROJ_WEIGHT: return &block->mlp;
	default: return &d->head;
	}
}

static int read_tensor(struct decoder *d, struct model_source *source,
	const struct gpt2_tensor *tensor, struct err *err)
{
	struct block *block = tensor->layer < 0 ? NULL : &d->blocks[tensor->layer];
	float **place = place_of(d, block, tensor->part);
	AUTO_FREE float *values = floats(tensor->elements);
	if (!values)
		return err_set(err, "model: no memory for tensor %s", tensor->name);
	if (source->read(source, tensor, values, err) < 0)
		return -1;
	if (place) {
		*place = AUTO_TAKE(values);
		return 0;
	}
	const bool is_head = tensor->part == GPT2_WTE;
	const int rows = (int)tensor->shape[0], columns = (int)tensor->shape[1];
	struct linear *linear = linear_of(d, block, tensor->part);
	if (take_weights(linear, values, is_head ? columns : rows, is_head ? rows : columns, is_head,
			d->half)
		< 0)
		return err_set(err, "model: no memory for tensor %s", tensor->name);
	return 0;
}

static int read_weights(struct decoder *d, struct model_source *source, struct err *err)
{
	AUTO_FREE struct gpt2_tensor *tensors = NULL;
	size_t count;
	if (gpt2_tensors(&d->config, &tensors, &count, err) < 0)
		return -1;
	for (size_t i = 0; i < count; i++)
		if (read_tensor(d, source, &tensors[i], err) < 0)
			return -1;
	return 0;
}

static int make_buffers(struct decoder *d)
{
	const uint64_t width = (uint64_t)d->config.width, cache = (uint64_t)d->config.context * width;
	d->residual = floats(TOKENS * width);
	d->normed = floats(TOKENS * width);
	d->qkv = floats(TOKENS * 3 * width);
	d->attended = floats(TOKENS * width);
	d->added = floats(TOKENS * width);
	d->hidden = floats(TOKENS * 4 * width);
	d->scores = floats((uint64_t)(d->config.heads * d->config.context));
	bool made =
		d->residual && d->normed && d->qkv && d->attended && d->added && d->hidden && d->scores;
	for (int64_t l = 0; made && l < d->config.layers; l++) {
		d->blocks[l].keys = floats(cache);
		d->blocks[l].values = floats(cache);
		made = d->blocks[l].keys && d->blocks[l].values;
	}
	return made ? 0 : -1;
}

struct decoder *decoder_open(struct model_source *source, bool half, struct err *err)
{
	struct decoder *d = calloc(1, sizeof *d);
	if (d)
		*d = (struct decoder) { .config = source->config,
			.kernels = kernels_now(),
			.half = half,
			.blocks = calloc((size_t)source->config.layers, sizeof *d->blocks) };
	if (d && d->blocks && make_buffers(d) == 0) {
		if (read_weights(d, source, err) == 0)
			return d;
	} else {
		err_set(err, "model: no memory for its activations, keys and values");
	}
	decoder_close(d);
	return NULL;
}

const struct gpt2_config *decoder_config(const struct decoder *d)
{
	return &d->config;
}

uint64_t decoder_weight_bytes(const struct decoder *d)
{
	const uint64_t width = (uint64_t)d->config.width;
	const uint64_t elements =
		(uint64_t)d->config.layers * 12 * width * width + (uint64_t)d->config.vocabulary * width;
	return elements * (d->half ? 2 : 4);
}

uint64_t decoder_cache_bytes(const struct decoder *d)
{
	return (uint64_t)(2 * d->config.layers * d->config.context * d->config.width) * sizeof(float);
}

size_t decoder_length(const struct decoder *d)
{
	return d->length;
}

void decoder_rewind(struct decoder *d, size_t length)
{
	d->length = length < d->length ? length : d->length;
}

/* ---- the forward pass ---- */

/* Shares the rows of the weights out among the threads, in runs. */
static void apply(const struct decoder *d, const struct linear *linear, const float *x, float *y,
	int tokens)
{
	const int runs = (linear->out + 15) / 16;
#pragma omp parallel for schedule(static)
	for (int run = 0; run < runs; run++) {
		const struct row_products products = { .tokens = tokens,
			.first = run * 16,
			.last = run + 1 < runs ? (run + 1) * 16 : linear->out,
			.width = linear->in,
			.x = x,
			.x_row = (size_t)linear->in,
			.w = linear->w,
			.half = d->half,
			.bias = linear->bias,
			.y = y,
			.y_row = (size_t)linear->out };
		d->kernels->row_products(&products);
	}
}

/* residual += add (NULL: nothing), and normed = its layernorm. */
static void normalise(struct decoder *d, const struct norm *norm, const float *add, int tokens)
{
	d->kernels->layernorm(d->residual, d->normed, d->mean, d->rstd, d->residual, add, norm->gamma,
		norm->beta, tokens, (int)d->config.width);
}

static void embed(struct decoder *d, const int32_t *tokens, int count)
{
	const size_t width = (size_t)d->config.width;
	for (int t = 0; t < count; t++)
		for (size_t c = 0; c < width; c++) {
			const size_t at = (size_t)tokens[t] * width + c;
			const float value = d->half ? bytes_bf16_to_float(((const uint16_t *)d->head.w)[at])
										: ((const float *)d->head.w)[at];
			d->residual[(size_t)t * width + c] =
				value + d->positions[(d->length + (size_t)t) * width + c];
		}
}

static void softmax(float *scores, int count, float scale)
{
	float most = -INFINITY, sum = 0;
	for (int s = 0; s < count; s++)
		most = fmaxf(most, scores[s]);
	for (int s = 0; s < count; s++)
		sum += scores[s] = expf((scores[s] - most) * scale);
	for (int s = 0; s < count; s++)
		scores[s] /= sum;
}

/* One head of all tokens: keeps their keys and values, then looks back from each. */
static void attend_head(struct decoder *d, struct block *block, int head, int tokens)
{
	const size_t width = (size_t)d->config.width, size = width / (size_t)d->config.heads;
	const size_t cache = (size_t)head * (size_t)d->config.context * size;
	float *keys = block->keys + cache, *values = block->values + cache;
	float *scores = d->scores + (size_t)head * (size_t)d->config.context;
	for (int t = 0; t < tokens; t++) {
		const float *query = d->qkv + (size_t)t * 3 * width + (size_t)head * size;
		const size_t position = d->length + (size_t)t;
		memcpy(keys + position * size, query + width, size * sizeof *keys);
		memcpy(values + position * size, query + 2 * width, size * sizeof *values);
		const struct row_products products = { .tokens = 1,
			.last = (int)position + 1,
			.width = (int)size,
			.x = query,
			.w = keys,
			.y = scores };
		d->kernels->row_products(&products);
		softmax(scores, (int)position + 1, 1 / sqrtf((float)size));
		d->kernels->weighted_rows(d->attended + (size_t)t * width + (size_t)head * size, scores,
			values, (int)position + 1, (int)size);
	}
}

static void attend(struct decoder *d, struct block *block, int tokens)
{
#pragma omp parallel for schedule(static)
	for (int head = 0; head < (int)d->config.heads; head++)
		attend_head(d, block, head, tokens);
}

/* d->added is what the block before adds to the residual stream; leaves there what this one adds.
 */
static void run_block(struct decoder *d, struct block *block, const float *added, int tokens)
{
	normalise(d, &block->ln_1, added, tokens);
	apply(d, &block->attention, d->normed, d->qkv, tokens);
	attend(d, block, tokens);
	apply(d, &block->projection, d->attended, d->added, tokens);
	normalise(d, &block->ln_2, d->added, tokens);
	apply(d, &block->fc, d->normed, d->hidden, tokens);
	d->kernels->bias_gelu(d->hidden, d->hidden, NULL, tokens, 4 * (int)d->config.width,
		4 * (size_t)d->config.width);
	apply(d, &block->mlp, d->hidden, d->added, tokens);
}

/* At most TOKENS of them. */
static void feed_some(struct decoder *d, const int32_t *tokens, int count, float *logits)
{
	const size_t last = (size_t)(count - 1) * (size_t)d->config.width;
	embed(d, tokens, count);
	for (int64_t l = 0; l < d->config.layers; l++)
		run_block(d, &d->blocks[l], l ? d->added : NULL, count);
	d->length += (size_t)count;
	if (!logits)
		return;
	normalise(d, &d->ln_f, d->added, count);
	apply(d, &d->head, d->normed + last, logits, 1);
}

int decoder_feed(struct decoder *d, const int32_t *tokens, size_t count, float *logits,
	struct err *err)
{
	const size_t context = (size_t)d->config.context;
	for (size_t i = 0; i < count; i++)
		if (tokens[i] < 0 || tokens[i] >= d->config.vocabulary)
			return err_fail(err, EXIT_DATA, "model: token %" PRId32 " is not below %" PRId64,
				tokens[i], d->config.vocabulary);
	if (count > context - d->length)
		return err_fail(err, EXIT_DATA,
			"model: %zu tokens after %zu are more than its context of %zu", count, d->length,
			context);
	for (size_t at = 0; at < count; at += TOKENS) {
		const size_t some = count - at < TOKENS ? count - at : TOKENS;
		feed_some(d, tokens + at, (int)some, at + some == count ? logits : NULL);
	}
	return 0;
}
