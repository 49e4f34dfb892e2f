/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a GPT-2 from a checkpoint; every byte is hashed before it is used. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint/convert/model_source.h"
#include "checkpoint/load/ckpt.h"
#include "checkpoint/load/ckpt_place.h"
#include "common/auto.h"

#define IO_SECONDS 10.0 /* an I/O error is retried for this long */

struct ckpt_model {
	struct model_source source; /* must be the first member */
	struct ckpt_place place;
	struct ckpt *ckpt;
};

static void close_model(struct model_source *source)
{
	struct ckpt_model *model = (struct ckpt_model *)source;
	ckpt_close(model->ckpt);
	ckpt_place_close(&model->place);
	free(model);
}

static int fail(const struct ckpt_model *model, struct err *err)
{
	return err_prefix(err, "model: %s/%s", model->place.dir.path, model->place.name);
}

static int read_tensor(struct model_source *source, const struct gpt2_tensor *tensor, float *out,
	struct err *err)
{
	struct ckpt_model *model = (struct ckpt_model *)source;
	const struct safetensors_tensor *found = ckpt_tensor_find(model->ckpt, tensor->name);
	if (!found || !safetensors_is_float(found->dtype) || found->dims != tensor->dims
		|| found->shape[0] != tensor->shape[0]
		|| (tensor->dims == 2 && found->shape[1] != tensor->shape[1]))
		return err_fail(err, EXIT_DATA,
			"model: %s/%s has no tensor %s of the size that its config.json gives",
			model->place.dir.path, model->place.name, tensor->name);
	if (found->dtype == SAFETENSORS_F32)
		return ckpt_read_tensor(model->ckpt, tensor->name, 0, tensor->elements, out, err) < 0
			? fail(model, err)
			: 0;
	AUTO_FREE void *raw = malloc(tensor->elements * safetensors_dtype_bits(found->dtype) / 8);
	if (!raw)
		return err_set(err, "model: no memory for tensor %s", tensor->name);
	if (ckpt_read_tensor(model->ckpt, tensor->name, 0, tensor->elements, raw, err) < 0)
		return fail(model, err);
	safetensors_to_fp32(found->dtype, raw, (size_t)tensor->elements, out);
	return 0;
}

static int open_model(struct ckpt_model *model, const char *path, struct err *err)
{
	AUTO_FREE char *config = NULL;
	size_t size;
	if (ckpt_place_open(&model->place, path, NULL, err) < 0)
		return -1;
	if (ckpt_open_folder(&model->place.dir, model->place.name, -1, IO_SECONDS, &model->ckpt, err)
			< 0
		|| ckpt_read_config(model->ckpt, &config, &size, err) < 0)
		return fail(model, err);
	if (!config)
		return err_fail(err, EXIT_DATA,
			"model: %s/%s holds the state of a program, not a model of muster-train",
			model->place.dir.path, model->place.name);
	return gpt2_config_parse(config, size, &model->source.config, err) < 0 ? fail(model, err) : 0;
}

struct model_source *ckpt_model_open(const char *path, struct err *err)
{
	struct ckpt_model *model = calloc(1, sizeof *model);
	if (!model) {
		err_set(err, "model: out of memory");
		return NULL;
	}
	*model = (struct ckpt_model) { .source = { .read = read_tensor, .close = close_model },
		.place.dir.fd = -1 };
	if (open_model(model, path, err) == 0)
		return &model->source;
	close_model(&model->source);
	return NULL;
}

struct model_source *model_source_open_any(const char *path, struct err *err)
{
	struct ckpt_place place;
	if (ckpt_place_is_step(path))
		return ckpt_model_open(path, err);
	const int rc = ckpt_place_open(&place, path, NULL, err);
	ckpt_place_close(&place);
	if (rc == 0)
		return ckpt_model_open(path, err);
	if (err->status == EXIT_LOST)
		return NULL;
	if (access(path, F_OK) == 0)
		return model_source_open(path, err);
	err_fail(err, EXIT_USAGE,
		"model: couldn't find %s: %s; give a checkpoint, a Hugging Face directory or a model file "
		"of llm.c",
		path, strerror(errno));
	return NULL;
}
