/* SPDX-License-Identifier: Apache-2.0 */
/* The members of an open checkpoint, for ckpt.c, which opens it, and ckpt_read.c, which reads
 * it. */
#ifndef MUSTER_CKPT_PRIVATE_H
#define MUSTER_CKPT_PRIVATE_H

#include <limits.h>

#include "checkpoint/load/ckpt.h"
#include "checkpoint/load/shard.h"

/* A model or optimizer file. */
struct source {
	struct shard shard;
	struct safetensors *header;
	struct shard_range *wanted; /* during a load; in the order of `begin` once all is known */
	size_t wanted_count, wanted_room;
};

/* A model tensor and the file that holds it. */
struct place {
	const struct safetensors_tensor *tensor;
	struct source *source;
};

/* Elements [first, first + count) of a tensor's optimizer state; they begin `base` elements into
 * the flat arrays of a file. */
struct slice {
	const struct safetensors_tensor *tensor;
	uint64_t first, count, base;
	struct source *source;
};

struct ckpt {
	int fd;          /* the checkpoint's folder */
	int manifest_fd; /* its lock, held while it is open, keeps the checkpoint from being removed */
	char name[NAME_MAX + 1];
	struct manifest *manifest;
	struct shard_cache cache;
	struct source *sources; /* one per file of the manifest, in its order */
	struct place *places;   /* sorted by name */
	size_t place_count;
	struct slice *slices; /* sorted by tensor and first element */
	size_t slice_count;
};

/* NULL when no tensor has that name. */
struct place *ckpt_place_find(const struct ckpt *ckpt, const char *name);

uint64_t ckpt_elements(const struct safetensors_tensor *tensor);

#endif
