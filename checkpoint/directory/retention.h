/* SPDX-License-Identifier: Apache-2.0 */
/* Decides which checkpoints may be removed, as a pure function of those that exist. */
#ifndef MUSTER_RETENTION_H
#define MUSTER_RETENTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct retention {
	size_t keep_last;   /* this many newest checkpoints stay; 0: all stay */
	int64_t keep_every; /* steps that are a multiple of this stay for ever; 0: none */
	size_t keep_best;   /* this many with the lowest validation loss stay; 0: none */
};

/* What the choice needs to know of one checkpoint. */
struct retention_item {
	int64_t step;
	double validation_loss; /* NAN: not known; such a checkpoint is never among the best */
	bool pinned;            /* stays */
};

/* Puts the steps to remove, ascending, into `remove`, which has room for `count`, and returns their
 * number. `items` is ascending by step. The newest is never removed; of equal losses the newer is
 * better. */
size_t retention_pick(const struct retention *policy, const struct retention_item *items,
	size_t count, int64_t *remove);

#endif
