/* SPDX-License-Identifier: Apache-2.0 */
/* A small training state whose every value is a function of its step: what tests save, and compare
 * with what they read. The golden checkpoints hold it, so its values never change. */
#ifndef MUSTER_TESTS_CKPT_SAMPLE_H
#define MUSTER_TESTS_CKPT_SAMPLE_H

#include "checkpoint/format/snapshot.h"
#include "checkpoint/load/ckpt.h"

#define CKPT_SAMPLE_TENSORS 3 /* of the model */
#define CKPT_SAMPLE_STATE 6   /* of the state: three tensors, and one in three boxes */
#define CKPT_SAMPLE_SLICES 3
#define CKPT_SAMPLE_ELEMENTS 64 /* more than any tensor has */

struct ckpt_sample {
	struct snapshot snapshot;
	struct snapshot_tensor tensors[CKPT_SAMPLE_TENSORS + CKPT_SAMPLE_STATE];
	struct snapshot_slice slices[CKPT_SAMPLE_SLICES];
	float matrix[35], vector[5];
	uint16_t half[3];
	float state[SNAPSHOT_STATES][2][CKPT_SAMPLE_ELEMENTS]; /* of matrix and vector */
	/* Of the state. */
	float average[24]; /* the boxes, one after the other */
	struct snapshot_box box[3];
	int64_t updates;
	uint8_t generator[16];
	char values[80];
};

/* Fills in the state after `step` steps. */
void ckpt_sample_fill(struct ckpt_sample *sample, int64_t step);

/* Adds tensors and values that only version 2 of the format has. */
void ckpt_sample_add_state(struct ckpt_sample *sample);

/* Makes it part `part` of `parts`: what others write has no data. */
void ckpt_sample_part(struct ckpt_sample *sample, int part, int parts, uint64_t shard_size);

/* Whether `ckpt` holds, bit for bit, the state after `step` steps, with or without what
 * ckpt_sample_add_state adds; else says what differs. */
int ckpt_sample_check(struct ckpt *ckpt, int64_t step, struct err *err);

#endif
