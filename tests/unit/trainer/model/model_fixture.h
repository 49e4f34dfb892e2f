/* SPDX-License-Identifier: Apache-2.0 */
/* A small model with its operations, arenas and batches, for the tests of models. Failures are
 * cmocka's. */
#ifndef MUSTER_TESTS_MODEL_FIXTURE_H
#define MUSTER_TESTS_MODEL_FIXTURE_H

#include "trainer/data/batch.h"
#include "trainer/model/model.h"
#include "trainer/ops/ops.h"

struct fixture {
	struct model *model;
	const struct tensor_table *table;
	struct ops *ops;
	float *weights; /* every tensor random, none at a special value */
	float *grads;   /* zero */
	int batch;
};

extern const struct model_config fixture_gpt2, fixture_forgetful_gpt2, fixture_mlp,
	fixture_normal_mlp;

struct fixture fixture_open(const struct model_config *config, bool plain, int batch);
void fixture_close(struct fixture *f);

/* An arena of zeros; freed by the caller. */
float *fixture_arena(const struct fixture *f);

/* Random samples, a function of the seed; about one target in eight is -1. Freed by
 * fixture_free_batch. */
struct batch fixture_batch(const struct fixture *f, int samples, uint64_t seed);
void fixture_free_batch(struct batch *batch);

/* A number of [0, 1) that depends on all arguments. */
double fixture_unit(uint64_t seed, uint32_t a, uint32_t b);

/* |a - b| / |b| over one tensor's logical elements, Euclidean. */
double fixture_distance(const struct tensor *row, const float *a, const float *b);

#endif
