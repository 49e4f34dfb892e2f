/* SPDX-License-Identifier: Apache-2.0 */
/* A program's plan for its checkpoints, checked. */
#ifndef MUSTER_PLAN_H
#define MUSTER_PLAN_H

#include <jansson.h>

#include "checkpoint/directory/retention.h"
#include "checkpoint/format/manifest.h"
#include "common/err.h"
#include "lib/arrays.h"

/* A value; all zeros: none. */
struct plan {
	double timeout;
	enum muster_writers writers;
	struct retention retention;
	struct arrays arrays; /* none: each save brings its own */
	json_t *identity;     /* an object; NULL: the program gives none */
};

/* Checks what the program has given, including the directory's name, which stays in `given`; status
 * EXIT_USAGE. On an error nothing is left to release. */
int plan_open(struct plan *plan, const struct muster_ckpt_plan *given, struct err *err);
void plan_release(struct plan *plan);

/* Checks that the checkpoint was saved with the plan's identity; status EXIT_USAGE, with the first
 * difference and both its values. */
int plan_check_identity(const struct plan *plan, const struct manifest *manifest, struct err *err);

/* The hash of the identity and of the arrays' names, types and shapes: equal on ranks that belong
 * together. */
int plan_hash(const struct plan *plan, struct hash128 *hash, struct err *err);

#endif
