/* SPDX-License-Identifier: Apache-2.0 */
/* Training data, memory-mapped and checked at opening: token files (llm.c's .bin, nanoGPT's raw
 * uint16) or tables (.npy). A text that names several files (file_list.h) makes one data set of
 * them: the samples of the first, then those of the second, …; a sample never spans two files. */
#ifndef MUSTER_DATASET_H
#define MUSTER_DATASET_H

#include <stdint.h>

#include "common/err.h"
#include "common/hash.h"
#include "order/sampler.h"
#include "trainer/data/batch.h"

struct dataset;

/* Tokens: sample i is the `positions`+1 tokens from i·positions on, so (tokens - 1) / positions
 * samples. The layout is told by the header (llm.c: 256 int32, magic 20240520, version 1, count;
 * uint16 tokens) or, for a name that ends in
 * ".bin" without that magic or ".u16", raw uint16 — a .bin whose first word is a wrong version or
 * count is an error. Of several files each has such samples, and the tokens behind its last one are
 * not used. Every message names the file; status EXIT_DATA. */
struct dataset *dataset_open_tokens(const char *data, int positions, struct err *err);
/* Tables: features from an .npy of float32 [samples, columns], classes from an .npy of uint8, int32
 * or int64 [samples]. Of several files the first of the one kind belongs to the first of the other,
 * and so on. */
struct dataset *dataset_open_table(const char *features, const char *classes, struct err *err);
void dataset_close(struct dataset *dataset);

uint64_t dataset_samples(const struct dataset *dataset);
size_t dataset_shards(
	const struct dataset *dataset); /* token files, or pairs of features and classes */
int dataset_features(const struct dataset *dataset);    /* columns; 0 for tokens */
uint64_t dataset_tokens(const struct dataset *dataset); /* 0 for tables */

/* The identity of the data, as fast for 100 GB as for 1: XXH3-128 over, for each file (tokens; or
 * features, then classes), its size as 8 little-endian bytes, the bytes of its header (none for raw
 * tokens) and 64 windows of 64 KiB, the first byte of window i being ⌊i · (size - 65536) / 63⌋. A
 * file of 4 MiB or less is hashed whole instead of by windows. Of n > 1 token files (or pairs of
 * features and classes) each has only max(2, ⌊64 / n⌋) windows, over which those formulas hold, so
 * that a thousand files start as fast; they follow one another in their order. Part of the
 * checkpoint format. */
struct hash128 dataset_identity(const struct dataset *dataset);

/* Allocates a batch of the data set's shape (freed by batch_free) and reads samples into it;
 * SAMPLER_NONE, and rows from `count` on, give zeros and targets of -1. A token ≥ `vocabulary` (a
 * class ≥ it for tables) is an error that names file, sample and value: EXIT_DATA. */
struct batch *batch_alloc(const struct dataset *dataset, int samples, struct err *err);
void batch_free(struct batch *batch);
int dataset_read(const struct dataset *dataset, const uint64_t *samples, int count, int vocabulary,
	struct batch *batch, struct err *err);

/* A thread that reads ahead: it is given lists of samples in order and returns their batches in the
 * same order. */
struct prefetch;
struct prefetch *prefetch_start(const struct dataset *dataset, int samples, int vocabulary,
	int depth, struct err *err);
/* Queues one microbatch; `samples` is copied. Never waits: an error when `depth` batches are
 * pending already. */
int prefetch_push(struct prefetch *prefetch, const uint64_t *samples, struct err *err);
/* The next batch, valid until the following call. NULL with the error of reading that batch (the
 * later ones can still be asked for), or with status EXIT_LOST when the storage does not answer for
 * five minutes. */
const struct batch *prefetch_next(struct prefetch *prefetch, struct err *err);
int prefetch_pending(const struct prefetch *prefetch); /* pushed and not yet returned */
/* Drops what is pending and ends the thread; batches handed out are no longer valid. NULL is
 * allowed. */
void prefetch_stop(struct prefetch *prefetch);

#endif
