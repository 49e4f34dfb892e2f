/* SPDX-License-Identifier: Apache-2.0 */
/* What the files that make up a data set share: its layout, and the two kinds of it. */
#ifndef MUSTER_DATASET_PRIVATE_H
#define MUSTER_DATASET_PRIVATE_H

#include "trainer/dataset.h"
#include "trainer/mapping.h"
#include "trainer/npy.h"

struct dataset {
	int references;          /* the opener and each prefetch thread */
	struct mapping files[2]; /* tokens; or features and classes */
	size_t headers[2];       /* bytes in front of the data of each file */
	int file_count;
	uint64_t samples;
	struct hash128 identity;
	int positions;           /* tokens: of a sample; 0 for a table */
	uint64_t tokens;
	int features;            /* tables: columns */
	enum npy_type class_type;
};

/* An empty data set with one reference, or NULL. dataset_close() takes it back in any state. */
struct dataset *dataset_create(struct err *err);

/* Called once the files are open and their headers known: computes the identity. */
int dataset_identify(struct dataset *dataset, struct err *err);

/* One more reference, given back by dataset_close(). */
const struct dataset *dataset_hold(const struct dataset *dataset);

/* Reads sample `sample` into row `row` of the batch. */
int dataset_read_tokens(const struct dataset *dataset, uint64_t sample, int vocabulary, struct batch *batch, int row,
	struct err *err);
int dataset_read_table(const struct dataset *dataset, uint64_t sample, int classes, struct batch *batch, int row,
	struct err *err);

#endif
