/* SPDX-License-Identifier: Apache-2.0 */
/* A program's plan for its checkpoints, checked, and where each of its arrays is in a snapshot. */
#ifndef MUSTER_PLAN_H
#define MUSTER_PLAN_H

#include "checkpoint/directory/retention.h"
#include "checkpoint/format/snapshot.h"
#include "checkpoint/load/ckpt.h"
#include "common/err.h"
#include "common/hash.h"
#include "lib/muster.h"

struct place;

/* A value; all zeros: none. The arrays are the program's. */
struct plan {
	double timeout;
	struct retention retention;
	struct snapshot_tensor *tensors; /* names are ours; plan_set_base sets the data */
	struct place *places;
	size_t count, bytes; /* bytes: of a snapshot */
};

/* Checks what the program has given, including the directory's name, which stays in `given`; status
 * EXIT_USAGE. On an error nothing is left to release. */
int plan_open(struct plan *plan, const struct muster_ckpt_plan *given, struct err *err);
void plan_release(struct plan *plan);

/* Points the tensors' data into a snapshot at `base`. */
void plan_set_base(struct plan *plan, const void *base);

/* Copies the arrays into a snapshot. */
void plan_copy(const struct plan *plan, void *snapshot);

/* Fills the arrays from a checkpoint. Returns CKPT_DAMAGED, or -1 with EXIT_DATA if it has other
 * tensors. */
int plan_load(const struct plan *plan, struct ckpt *from, struct err *err);

/* The hash of names, types and shapes: equal on ranks that have the same state. */
int plan_hash(const struct plan *plan, struct hash128 *hash, struct err *err);

#endif
