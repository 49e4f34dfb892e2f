/* SPDX-License-Identifier: Apache-2.0 */
/* Reads llm.c's model file (karpathy/llm.c, train_gpt2.py: write_model): 256 int32 (magic, version,
 * context, vocabulary, layers, heads, width, padded vocabulary, zeros), then the tensors in the
 * order of enum gpt2_part, each for all layers in one run. Version 3 is fp32, version 5 BF16. Its
 * matrices are [out, in], so they are transposed; the token embedding ends with padding rows. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/convert/model_source.h"
#include "checkpoint/format/safetensors.h"
#include "common/auto.h"
#include "common/bytes.h"
#include "common/io.h"

#define MAGIC 20240326
#define HEADER_BYTES 1024
#define PADDED_MAX (1 << 20)

struct llmc_model {
	struct model_source source; /* must be the first member */
	int fd;
	enum safetensors_dtype dtype;
	int64_t padded; /* vocabulary including padding */
};

static void close_model(struct model_source *source)
{
	struct llmc_model *model = (struct llmc_model *)source;
	if (model->fd >= 0)
		close(model->fd);
	free(model);
}

static uint64_t width_of(const struct llmc_model *model)
{
	return safetensors_dtype_bits(model->dtype) / 8;
}

/* Elements of one layer's `part` in the file. */
static uint64_t elements_of(const struct llmc_model *model, const struct gpt2_tensor *all,
	enum gpt2_part part)
{
	if (part == GPT2_WTE)
		return (uint64_t)(model->padded * model->source.config.width);
	/* `all` lists wte, wpe, block 0, then ln_f: the shapes of one block suffice */
	return all[part].elements;
}

/* Sets *first to the first element of a tensor, counted from the end of the header; `part`
 * GPT2_PARTS: the end of the file. */
static int locate(const struct llmc_model *model, enum gpt2_part part, int layer, uint64_t *first,
	struct err *err)
{
	struct gpt2_config one = model->source.config;
	struct gpt2_tensor *all;
	size_t count;
	uint64_t at = 0;
	one.layers = 1; /* with one layer, the list is in the order of the parts */
	if (gpt2_tensors(&one, &all, &count, err) < 0)
		return -1;
	for (int p = 0; p < (int)part; p++)
		at += elements_of(model, all, (enum gpt2_part)p)
			* (gpt2_is_of_block((enum gpt2_part)p) ? (uint64_t)model->source.config.layers : 1);
	if (layer > 0)
		at += elements_of(model, all, part) * (uint64_t)layer;
	free(all);
	*first = at;
	return 0;
}

static int is_matrix_of_block(const struct gpt2_tensor *tensor)
{
	return tensor->dims == 2 && gpt2_is_of_block(tensor->part);
}

/* Transposes [out, in] as read to [in, out]. */
static void transpose(const float *from, float *to, int64_t in, int64_t out)
{
	for (int64_t o = 0; o < out; o++)
		for (int64_t i = 0; i < in; i++)
			to[i * out + o] = from[o * in + i];
}

static int read_floats(const struct llmc_model *model, const struct gpt2_tensor *tensor, float *out,
	struct err *err)
{
	uint64_t first;
	if (locate(model, tensor->part, tensor->layer, &first, err) < 0)
		return -1;
	size_t bytes = (size_t)(tensor->elements * width_of(model));
	AUTO_FREE char *raw = malloc(bytes);
	if (!raw)
		return err_set(err, "model: no memory for tensor %s", tensor->name);
	ssize_t n = io_read_at(model->fd, raw, bytes, (off_t)(HEADER_BYTES + first * width_of(model)));
	if (n < 0)
		return err_fail(err, EXIT_LOST, "model: couldn't read tensor %s: %m", tensor->name);
	if ((size_t)n != bytes)
		return err_fail(err, EXIT_DATA, "model: the file ends within tensor %s", tensor->name);
	safetensors_to_fp32(model->dtype, raw, (size_t)tensor->elements, out);
	return 0;
}

static int read_tensor(struct model_source *source, const struct gpt2_tensor *tensor, float *out,
	struct err *err)
{
	struct llmc_model *model = (struct llmc_model *)source;
	if (!is_matrix_of_block(tensor))
		return read_floats(model, tensor, out, err);
	AUTO_FREE float *turned = malloc((size_t)tensor->elements * sizeof *turned);
	if (!turned)
		return err_set(err, "model: no memory for tensor %s", tensor->name);
	if (read_floats(model, tensor, turned, err) < 0)
		return -1;
	transpose(turned, out, tensor->shape[0], tensor->shape[1]);
	return 0;
}

static int parse_header(struct llmc_model *model, const char *header, const char *path,
	struct err *err)
{
	struct gpt2_config *config = &model->source.config;
	int32_t fields[8];
	for (int i = 0; i < 8; i++)
		fields[i] = (int32_t)bytes_le32(header + 4 * i);
	if (fields[0] != MAGIC)
		return err_fail(err, EXIT_DATA,
			"model: %s is no model file of llm.c: it begins with %d, not with %d", path, fields[0],
			MAGIC);
	if (fields[1] != 3 && fields[1] != 5)
		return err_fail(err, EXIT_DATA,
			"model: %s has version %d; llm.c's versions 3 (fp32) and 5 (bf16) can be read", path,
			fields[1]);
	model->dtype = fields[1] == 3 ? SAFETENSORS_F32 : SAFETENSORS_BF16;
	*config = (struct gpt2_config) { .context = fields[2],
		.vocabulary = fields[3],
		.layers = fields[4],
		.heads = fields[5],
		.width = fields[6] };
	model->padded = fields[7];
	config->begin = config->end = config->vocabulary > 50256 ? 50256 : -1; /* GPT-2's end of text */
	if (gpt2_check(config, path, err) < 0)
		return -1;
	if (model->padded < config->vocabulary || model->padded > PADDED_MAX)
		return err_fail(err, EXIT_DATA,
			"model: %s has a padded vocabulary of %" PRId64 " for %" PRId64 " tokens", path,
			model->padded, config->vocabulary);
	return 0;
}

static int check_size(const struct llmc_model *model, const char *path, struct err *err)
{
	struct stat st;
	uint64_t elements;
	if (fstat(model->fd, &st) < 0)
		return err_fail(err, EXIT_LOST, "model: couldn't look at %s: %m", path);
	if (locate(model, GPT2_PARTS, -1, &elements, err) < 0)
		return -1;
	uint64_t want = HEADER_BYTES + elements * width_of(model);
	if ((uint64_t)st.st_size != want)
		return err_fail(err, EXIT_DATA,
			"model: %s has %lld bytes, and a model of its dimensions %" PRIu64, path,
			(long long)st.st_size, want);
	return 0;
}

struct model_source *llmc_model_open(const char *path, struct err *err)
{
	char header[HEADER_BYTES];
	struct llmc_model *model = calloc(1, sizeof *model);
	if (!model) {
		err_set(err, "model: no memory");
		return NULL;
	}
	model->source.read = read_tensor;
	model->source.close = close_model;
	model->fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	ssize_t n = model->fd < 0 ? -1 : io_read_full(model->fd, header, sizeof header);
	int result = 0;
	if (n < 0)
		result = err_fail(err, io_status_or(errno, EXIT_DATA), "model: couldn't read %s: %m", path);
	else if (n < HEADER_BYTES)
		result = err_fail(err, EXIT_DATA,
			"model: %s has %zd bytes, too few for a model file of llm.c", path, n);
	else if (parse_header(model, header, path, err) < 0 || check_size(model, path, err) < 0)
		result = -1;
	if (result == 0)
		return &model->source;
	close_model(&model->source);
	return NULL;
}
