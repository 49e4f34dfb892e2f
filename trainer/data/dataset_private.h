/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files that make up a data set: its structure, and the functions of its two
 * kinds. */
#ifndef MUSTER_DATASET_PRIVATE_H
#define MUSTER_DATASET_PRIVATE_H

#include "trainer/data/dataset.h"
#include "trainer/data/mapping.h"
#include "trainer/data/npy.h"

/* A token file, or a file of features and the file of its classes. */
struct dataset_shard {
	struct mapping files[2];  /* tokens; or features and classes */
	size_t headers[2];        /* bytes before the data of each file */
	int width;                /* tokens: bytes of one */
	uint64_t first, samples;  /* `first`: number of its first sample in the data set */
	enum npy_type class_type; /* tables */
};

struct dataset {
	int references; /* held by the opener and each prefetch thread */
	char *name;     /* the option's text that names the files */
	struct dataset_shard *shards;
	size_t shard_count;
	int shard_files; /* files of each shard: 1 or 2 */
	uint64_t samples;
	struct hash128 identity;
	int positions; /* tokens: of a sample; tables: 0 */
	uint64_t tokens;
	int features; /* tables: columns */
};

/* Makes a data set of this many shards, not open yet, with one reference. NULL on error.
 * dataset_close() accepts it in any state. */
struct dataset *dataset_create(const char *name, size_t shards, int shard_files, struct err *err);

/* Call it once the files are open and their headers known: numbers the samples and computes the
 * identity. */
int dataset_complete(struct dataset *dataset, struct err *err);

/* Takes one more reference, which dataset_close() drops. */
const struct dataset *dataset_hold(const struct dataset *dataset);

/* Read sample `sample` of the shard (each counts from 0) into row `row` of the batch. */
int dataset_read_tokens(const struct dataset *dataset, const struct dataset_shard *shard,
	uint64_t sample, int vocabulary, struct batch *batch, int row, struct err *err);
int dataset_read_table(const struct dataset *dataset, const struct dataset_shard *shard,
	uint64_t sample, int classes, struct batch *batch, int row, struct err *err);

#endif
