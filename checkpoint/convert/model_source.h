/* SPDX-License-Identifier: Apache-2.0 */
/* A GPT-2 in a checkpoint or in another project's files: one interface, with one provider for each
 * format. */
#ifndef MUSTER_MODEL_SOURCE_H
#define MUSTER_MODEL_SOURCE_H

#include "checkpoint/format/gpt2.h"
#include "common/err.h"

struct model_source {
	struct gpt2_config config;
	/* Reads a whole tensor of gpt2_tensors(&config) as fp32, row-major and without padding. */
	int (*read)(struct model_source *source, const struct gpt2_tensor *tensor, float *out,
		struct err *err);
	void (*close)(struct model_source *source);
};

/* Opens the directory or file `path` as the format that it has. NULL on error: with EXIT_DATA the
 * message names what can't be used and how to mend it; with EXIT_USAGE the path is missing, or
 * neither a directory nor a file. Freed by source->close. */
struct model_source *model_source_open(const char *path, struct err *err);

/* The same; or a checkpoint's folder, or the newest checkpoint of a checkpoint directory. */
struct model_source *model_source_open_any(const char *path, struct err *err);

/* A directory as written by Hugging Face's save_pretrained: config.json and model.safetensors, or
 * shards and their index. */
struct model_source *hf_model_open(const char *path, struct err *err);

/* A checkpoint's folder, or the newest checkpoint of a checkpoint directory. */
struct model_source *ckpt_model_open(const char *path, struct err *err);

/* A model file of llm.c. */
struct model_source *llmc_model_open(const char *path, struct err *err);

#endif
