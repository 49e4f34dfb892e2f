/* SPDX-License-Identifier: Apache-2.0 */
/* A program's arrays as the tensors of a snapshot: checked, and where each of them is in it. */
#ifndef MUSTER_ARRAYS_H
#define MUSTER_ARRAYS_H

#include "checkpoint/format/snapshot.h"
#include "checkpoint/load/ckpt.h"
#include "common/err.h"
#include "common/hash.h"
#include "lib/muster.h"

struct place;

/* A value; all zeros: none. The arrays are the program's. */
struct arrays {
	struct snapshot_tensor *tensors; /* names are ours; arrays_set_base sets the data */
	struct place *places;
	size_t count, bytes; /* bytes: of a snapshot */
};

/* Checks and copies the descriptions of the model's tensors and of the others; status EXIT_USAGE.
 * On an error nothing is left to release. */
int arrays_open(struct arrays *arrays, const struct muster_tensor *model, size_t model_count,
	const struct muster_tensor *state, size_t state_count, struct err *err);
void arrays_release(struct arrays *arrays);

/* Points the tensors' data into a snapshot at `base`. */
void arrays_set_base(struct arrays *arrays, const void *base);

/* Copies the arrays into a snapshot. */
void arrays_copy(const struct arrays *arrays, void *snapshot);

/* Fills the arrays from a checkpoint. Returns CKPT_DAMAGED, or -1 with EXIT_DATA if it has other
 * tensors. */
int arrays_load(const struct arrays *arrays, struct ckpt *from, struct err *err);

/* The hash of names, types and shapes: equal on ranks that have the same state. */
int arrays_hash(const struct arrays *arrays, struct hash128 *hash, struct err *err);

#endif
