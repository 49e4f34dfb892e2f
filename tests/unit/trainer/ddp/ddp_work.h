/* SPDX-License-Identifier: Apache-2.0 */
/* A world of ranks that reduce made-up gradients, and what must come out, computed directly.
 * Included after cmocka.h. */
#ifndef MUSTER_TESTS_DDP_WORK_H
#define MUSTER_TESTS_DDP_WORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/unit/trainer/ddp/ddp_table.h"
#include "trainer/ddp/ddp.h"

#define STEPS 2
#define VALID 37 /* tokens counted in a slot; slot s has VALID + s */

/* What a world computes, and what must come out; filled in before the fork. */
struct ddp_work {
	struct tensor_table table;
	struct ops *ops;
	int slots;
	size_t bucket_bytes;
	int native, zero;
	int nodes; /* 0: each rank counts as a node; else the ranks are on so many, in turn of their
				  numbers; a node gets `larger` ranks more than the one after it */
	int larger;
	bool spread;         /* the ranks of a node do not follow each other */
	float *grads[STEPS]; /* the direct sums */
	float *magnitude;    /* sum of |g| of step 0, the scale of rounding errors */
	double norm[STEPS];
	int64_t valid;
};

/* A gradient whose sums round: magnitudes over many powers of two. */
float ddp_work_gradient(uint64_t step, int slot, size_t at);
/* A layer's gradients of a slot; layer 0 has the head's of a split embedding. */
void ddp_work_fill_layer(const struct tensor_table *table, float *arena, uint64_t step, int slot,
	int layer);
double ddp_work_slot_loss(uint64_t step, int slot);

void ddp_work_make(struct ddp_work *job, int slots, size_t bucket_bytes, int native);
void ddp_work_make_split(struct ddp_work *job, int slots, size_t bucket_bytes, int native,
	bool split);
void ddp_work_free(struct ddp_work *job);
/* The node of a rank. */
int ddp_work_node(const struct ddp_work *job, int world, int rank);

/* One step as the training loop does it. */
struct ddp *ddp_work_create(struct comm *comm, const struct ddp_work *job, struct err *err);
void ddp_work_train_slot(struct ddp *ddp, const struct ddp_work *job, uint64_t step, int slot);
int ddp_work_run_step(struct ddp *ddp, const struct ddp_work *job, uint64_t step,
	struct ddp_control control, struct ddp_result *result, struct err *err);
struct ddp_control ddp_work_control(struct comm *comm, uint64_t step);

#endif
