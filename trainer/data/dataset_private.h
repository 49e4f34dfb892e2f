/* SPDX-License-Identifier: Apache-2.0 */
/* What the files that make up a data set share: its layout, and the two kinds of it. */
#ifndef MUSTER_DATASET_PRIVATE_H
#define MUSTER_DATASET_PRIVATE_H

#include "trainer/data/dataset.h"
#include "trainer/data/mapping.h"
#include "trainer/data/npy.h"

/* A token file, or features and classes that belong together. */
struct dataset_shard {
	struct mapping files[2];  /* tokens; or features and classes */
	size_t headers[2];        /* bytes in front of the data of each file */
	uint64_t first, samples;  /* the number of its first sample in the data set */
	enum npy_type class_type; /* tables */
};

struct dataset {
	int references; /* the opener and each prefetch thread */
	char *name;     /* the text that names the files */
	struct dataset_shard *shards;
	size_t shard_count;
	int shard_files; /* of each: 1 or 2 */
	uint64_t samples;
	struct hash128 identity;
	int positions; /* tokens: of a sample; 0 for a table */
	uint64_t tokens;
	int features; /* tables: columns */
};

/* A data set of so many shards, not open yet, with one reference, or NULL. dataset_close() takes it
 * back in any state. */
struct dataset *dataset_create(const char *name, size_t shards, int shard_files, struct err *err);

/* Called once the files are open and their headers known: numbers the samples and computes the
 * identity. */
int dataset_complete(struct dataset *dataset, struct err *err);

/* One more reference, given back by dataset_close(). */
const struct dataset *dataset_hold(const struct dataset *dataset);

/* Reads sample `sample` of the shard (counted from 0 in each) into row `row` of the batch. */
int dataset_read_tokens(const struct dataset *dataset, const struct dataset_shard *shard,
	uint64_t sample, int vocabulary, struct batch *batch, int row, struct err *err);
int dataset_read_table(const struct dataset *dataset, const struct dataset_shard *shard,
	uint64_t sample, int classes, struct batch *batch, int row, struct err *err);

#endif
