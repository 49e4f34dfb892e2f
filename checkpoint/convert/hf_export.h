/* SPDX-License-Identifier: Apache-2.0 */
/* Exports a checkpoint's model as a directory that Hugging Face's from_pretrained opens. */
#ifndef MUSTER_HF_EXPORT_H
#define MUSTER_HF_EXPORT_H

#include <stddef.h>
#include <stdint.h>

#include "checkpoint/load/ckpt.h"
#include "common/err.h"

struct hf_export {
	enum safetensors_dtype
		dtype; /* SAFETENSORS_F32, or SAFETENSORS_BF16 (rounded to nearest, ties to even) */
	uint64_t shard_size; /* maximum data bytes of a file, which only a single larger tensor exceeds;
							0: one file */
	const char *config;  /* the text of config.json; the export sets its torch_dtype */
	/* Called after each block with the number of bytes written; a non-zero result ends the export
	 * (EXIT_FAULT). May be NULL. */
	int (*progress)(void *arg, uint64_t bytes);
	void *arg;
};

/* Writes model.safetensors (or shards and their index) and config.json into the empty folder
 * `dirfd`, each durable. *files is the number of shards, *bytes the bytes of all tensors. Where the
 * weights are narrower than fp32, fp32 values come from the optimizer's master weights. Returns 0,
 * -1 or CKPT_DAMAGED. */
int hf_export(struct ckpt *ckpt, int dirfd, const struct hf_export *export, size_t *files,
	uint64_t *bytes, struct err *err);

#endif
