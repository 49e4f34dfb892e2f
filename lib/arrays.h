/* SPDX-License-Identifier: Apache-2.0 */
/* A program's arrays as the tensors of a snapshot: checked, and where each of them is in it. */
#ifndef MUSTER_ARRAYS_H
#define MUSTER_ARRAYS_H

#include "checkpoint/format/snapshot.h"
#include "checkpoint/load/ckpt.h"
#include "common/err.h"
#include "common/hash.h"
#include "lib/muster.h"
#include "lib/writers.h"

struct place;

/* A value; all zeros: none. The arrays are the program's. */
struct arrays {
	struct snapshot_tensor *tensors; /* names are ours; arrays_set_base sets the data */
	struct place *places;
	size_t count, bytes; /* bytes: of this rank's part of a snapshot */
};

/* Checks and copies the descriptions of the model's tensors and of the others, and divides them
 * among the writers; status EXIT_USAGE. What this rank writes needs no data before arrays_copy. On
 * an error nothing is left to release. */
int arrays_open(struct arrays *arrays, const struct muster_state *given,
	const struct writers *writers, struct err *err);
void arrays_release(struct arrays *arrays);

/* Divides them anew, once the writers are known. */
int arrays_divide(struct arrays *arrays, const struct writers *writers, struct err *err);

/* Sets own[i] to whether this rank writes tensor i, counted in the order in which they were
 * given. */
void arrays_own(const struct arrays *arrays, unsigned char *own);

/* Checks that all arrays that this rank writes have data; status EXIT_USAGE. */
int arrays_check_data(const struct arrays *arrays, struct err *err);

/* Points the tensors' data into a snapshot at `base`. */
void arrays_set_base(struct arrays *arrays, const void *base);

/* Copies this rank's arrays into its part of a snapshot. */
void arrays_copy(const struct arrays *arrays, void *snapshot);

/* Fills the arrays from a checkpoint. Returns CKPT_DAMAGED, or -1 with EXIT_DATA if it has other
 * tensors. */
int arrays_load(const struct arrays *arrays, struct ckpt *from, struct err *err);

/* The hash of names, types and shapes: equal on ranks that have the same state. */
int arrays_hash(const struct arrays *arrays, struct hash128 *hash, struct err *err);

#endif
