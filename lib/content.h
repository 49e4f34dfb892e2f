/* SPDX-License-Identifier: Apache-2.0 */
/* What one save holds: the arrays that are copied to its buffer, and the texts beside them. */
#ifndef MUSTER_CONTENT_H
#define MUSTER_CONTENT_H

#include "checkpoint/format/snapshot.h"
#include "common/err.h"
#include "lib/arrays.h"

/* A value; all zeros: nothing. It must outlive the save, which borrows it. */
struct content {
	struct arrays arrays; /* its own; none: the plan's are saved */
	char *config, *values;
};

/* Checks the state and copies what it says, but not the arrays' bytes, which may still be missing;
 * status EXIT_USAGE. *at becomes the save's position and losses, without its step. On an error
 * nothing is left to release. */
int content_open(struct content *content, const struct muster_state *given,
	const struct writers *writers, struct save_step *at, struct err *err);
void content_release(struct content *content);

#endif
