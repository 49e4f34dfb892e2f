/* SPDX-License-Identifier: Apache-2.0 */
/* A GPT-2 in somebody else's files: one provider a format behind one interface. */
#ifndef MUSTER_MODEL_SOURCE_H
#define MUSTER_MODEL_SOURCE_H

#include "checkpoint/format/gpt2.h"
#include "common/err.h"

struct model_source {
	struct gpt2_config config;
	/* Reads a tensor of gpt2_tensors(&config) whole, row-major and without padding, as fp32. */
	int (*read)(struct model_source *source, const struct gpt2_tensor *tensor, float *out,
		struct err *err);
	void (*close)(struct model_source *source);
};

/* Opens the directory or file `path` by what it is. NULL on error: status EXIT_DATA names what
 * can't be used and how it could be, EXIT_USAGE a path that is not there. Freed by source->close.
 */
struct model_source *model_source_open(const char *path, struct err *err);

/* A directory as Hugging Face's save_pretrained leaves it: config.json and model.safetensors, or
 * shards and their index. */
struct model_source *hf_model_open(const char *path, struct err *err);

/* A model file of llm.c. */
struct model_source *llmc_model_open(const char *path, struct err *err);

#endif
