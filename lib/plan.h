/* SPDX-License-Identifier: Apache-2.0 */
/* A program's plan of its checkpoints, checked, and where each of its arrays lies in a snapshot. */
#ifndef MUSTER_PLAN_H
#define MUSTER_PLAN_H

#include "checkpoint/directory/retention.h"
#include "checkpoint/format/snapshot.h"
#include "checkpoint/load/ckpt.h"
#include "common/err.h"
#include "common/hash.h"
#include "lib/muster.h"

struct place;

/* A value; zeroed means none. The arrays are the program's. */
struct plan {
	double timeout;
	struct retention retention;
	struct snapshot_tensor *tensors; /* their names are ours, their data is set by plan_set_base */
	struct place *places;
	size_t count, bytes; /* bytes of a snapshot */
};

/* Checks what a program has given, the directory's name too, which stays in `given`; EXIT_USAGE. On
 * an error nothing is left to release. */
int plan_open(struct plan *plan, const struct muster_ckpt_plan *given, struct err *err);
void plan_release(struct plan *plan);

/* The tensors' data is that of a snapshot at `base`. */
void plan_set_base(struct plan *plan, const void *base);

/* Copies the arrays to a snapshot. */
void plan_copy(const struct plan *plan, void *snapshot);

/* Fills the arrays from a checkpoint. CKPT_DAMAGED; -1, EXIT_DATA where it has other tensors. */
int plan_load(const struct plan *plan, struct ckpt *from, struct err *err);

/* Of the names, types and shapes: equal on ranks that have the same state. */
int plan_hash(const struct plan *plan, struct hash128 *hash, struct err *err);

#endif
