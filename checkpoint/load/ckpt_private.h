/* SPDX-License-Identifier: Apache-2.0 */
/* The members of an open checkpoint, for ckpt.c, which opens it, ckpt_tables.c, which finds out
 * what lies where, and ckpt_read.c, which reads it. */
#ifndef MUSTER_CKPT_PRIVATE_H
#define MUSTER_CKPT_PRIVATE_H

#include <jansson.h>
#include <limits.h>

#include "checkpoint/format/boxes.h"
#include "checkpoint/load/ckpt.h"
#include "checkpoint/load/shard.h"

/* A file; `header` is that of a model, optimizer or state file. */
struct source {
	struct shard shard;
	struct safetensors *header;
	json_t *boxes; /* of a state file: what its metadata says about boxes; NULL: nothing */
	struct shard_range *wanted; /* during a load; in the order of `begin` once all is known */
	size_t wanted_count, wanted_room;
};

/* A tensor as a file has it: a whole one, or a box. */
struct entry {
	const struct safetensors_tensor *tensor;
	struct source *source;
};

/* A tensor of the model or of the state, and its boxes; the owner of each is its entry. */
struct place {
	struct safetensors_tensor tensor; /* the whole one; `begin` is 0 */
	enum manifest_role role;          /* of its files: MANIFEST_MODEL or MANIFEST_STATE */
	const struct box *boxes;
	size_t box_count;
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
	struct entry *entries;  /* in the order of the files */
	struct box *boxes;      /* one per entry, in the order of boxes_check */
	size_t entry_count;
	struct place *places; /* the model's, then the state's; each sorted by name */
	size_t place_count, model_count;
	struct slice *slices; /* sorted by tensor and first element */
	size_t slice_count;
};

/* Fills in the tables of an open checkpoint whose headers have been read. Contents that contradict
 * each other are CKPT_DAMAGED. */
int ckpt_tables_make(struct ckpt *ckpt, struct err *err);
void ckpt_tables_free(struct ckpt *ckpt);

/* Sets err to a reason, with EXIT_DATA; returns CKPT_DAMAGED. */
int ckpt_damaged(struct err *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* NULL when no tensor has that name. */
struct place *ckpt_place_find(const struct ckpt *ckpt, const char *name);

uint64_t ckpt_elements(const struct safetensors_tensor *tensor);

#endif
