/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a checkpoint that is open, for ckpt.c, which opens it, and ckpt_read.c, which reads
 * it. */
#ifndef MUSTER_CKPT_PRIVATE_H
#define MUSTER_CKPT_PRIVATE_H

#include <limits.h>

#include "checkpoint/load/ckpt.h"
#include "checkpoint/load/shard.h"

/* A file of the model or the optimizer. */
struct source {
	struct shard shard;
	struct safetensors *header;
};

/* A model tensor and the file it lies in. */
struct place {
	const struct safetensors_tensor *tensor;
	struct source *source;
};

/* Elements [first, first + count) of a tensor's optimizer state, `base` elements into the flat
 * arrays of a file. */
struct slice {
	const struct safetensors_tensor *tensor;
	uint64_t first, count, base;
	struct source *source;
};

struct ckpt {
	int fd;          /* of the checkpoint's folder */
	int manifest_fd; /* locked while it is open, so that nobody removes the checkpoint */
	char name[NAME_MAX + 1];
	struct manifest *manifest;
	struct shard_cache cache;
	struct source *sources; /* one for each file of the manifest, in its order */
	struct place *places;   /* by name */
	size_t place_count;
	struct slice *slices; /* by tensor and first element */
	size_t slice_count;
};

/* NULL when there is none of that name. */
struct place *ckpt_place_find(const struct ckpt *ckpt, const char *name);

uint64_t ckpt_elements(const struct safetensors_tensor *tensor);

#endif
