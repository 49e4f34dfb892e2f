/* SPDX-License-Identifier: Apache-2.0 */
/* A data set for training, memory-mapped and checked when it is opened: token files (llm.c's .bin,
 * nanoGPT's raw uint16) or tables (.npy). Several files (file_list.h) make one data set: the
 * samples of the first, then those of the second, and so on; no sample spans two files. */
#ifndef MUSTER_DATASET_H
#define MUSTER_DATASET_H

#include <stdint.h>

#include "common/err.h"
#include "common/hash.h"
#include "order/sampler.h"
#include "trainer/data/batch.h"

struct dataset;

/* Opens token files. Sample i is the `positions`+1 tokens from i·positions on, so there are (tokens
 * - 1) / positions samples. The header tells the layout (llm.c: 256 int32: magic 20240520, version
 * 1, count, then uint16 tokens; or magic 20240801, version 7, count, then uint32 tokens). A name
 * that ends in ".u16" means raw uint16, and so does one in ".bin" without those magics; a .bin
 * whose header has a wrong version or count is an error. Of several files each has its own samples,
 * and the tokens after its last one are not used. NULL with
 * status EXIT_DATA; every message names the file. */
struct dataset *dataset_open_tokens(const char *data, int positions, struct err *err);
/* Opens tables: features from an .npy of float32 [samples, columns], classes from an .npy of uint8,
 * int32 or int64 [samples]. Of several files, the first of features belongs to the first of
 * classes, and so on. */
struct dataset *dataset_open_table(const char *features, const char *classes, struct err *err);
void dataset_close(struct dataset *dataset);

uint64_t dataset_samples(const struct dataset *dataset);
size_t dataset_shards(
	const struct dataset *dataset); /* number of token files, or of pairs of features and classes */
int dataset_features(const struct dataset *dataset);    /* columns; 0 for tokens */
uint64_t dataset_tokens(const struct dataset *dataset); /* 0 for tables */

/* The identity of the data, which takes no longer for 100 GB than for 1: XXH3-128 over, for each
 * file (tokens; or features, then classes), its size as 8 little-endian bytes, the bytes of its
 * header (none for raw tokens) and 64 windows of 64 KiB, the first byte of window i being ⌊i ·
 * (size - 65536) / 63⌋. A file of 4 MiB or less is hashed whole instead of by windows. With n > 1
 * token files (or pairs of features and classes), each has only max(2, ⌊64 / n⌋) windows, with the
 * same formulas for that number, so that a thousand files start as fast; they follow one another in
 * their order. Part of the checkpoint format. */
struct hash128 dataset_identity(const struct dataset *dataset);

/* batch_alloc makes a batch of the data set's shape (free it with batch_free). dataset_read reads
 * samples into it; SAMPLER_NONE, and rows from `count` on, become zeros with targets of -1. A token
 * (or class) ≥ `vocabulary` is an error that names file, sample and value: EXIT_DATA. */
struct batch *batch_alloc(const struct dataset *dataset, int samples, struct err *err);
void batch_free(struct batch *batch);
int dataset_read(const struct dataset *dataset, const uint64_t *samples, int count, int vocabulary,
	struct batch *batch, struct err *err);

/* Reads ahead in a thread: it takes lists of samples and returns their batches in the same
 * order. */
struct prefetch;
struct prefetch *prefetch_start(const struct dataset *dataset, int samples, int vocabulary,
	int depth, struct err *err);
/* Queues one microbatch; copies `samples`. Never waits: an error when `depth` batches are already
 * pending. */
int prefetch_push(struct prefetch *prefetch, const uint64_t *samples, struct err *err);
/* Returns the next batch, valid until the following call. NULL with the error of reading that batch
 * (later ones can still be asked for), or with status EXIT_LOST when the storage does not answer
 * for five minutes. */
const struct batch *prefetch_next(struct prefetch *prefetch, struct err *err);
int prefetch_pending(const struct prefetch *prefetch); /* batches pushed and not yet returned */
/* Drops what is pending and ends the thread; batches that it returned become invalid. `prefetch`
 * may be NULL. */
void prefetch_stop(struct prefetch *prefetch);

#endif
