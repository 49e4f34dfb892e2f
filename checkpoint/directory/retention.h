/* SPDX-License-Identifier: Apache-2.0 */
/* Which checkpoints may go: a pure function of those that are there. */
#ifndef MUSTER_RETENTION_H
#define MUSTER_RETENTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct retention {
	size_t keep_last;   /* the newest so many stay; 0 keeps all */
	int64_t keep_every; /* a step that is a multiple of this stays for ever; 0: none does so */
	size_t keep_best;   /* the so many with the lowest validation loss stay; 0: none does so */
};

/* What is known of one checkpoint. */
struct retention_item {
	int64_t step;
	double validation_loss; /* NAN: not known; then it is not among the best */
	bool pinned;            /* stays */
};

/* Puts the steps to remove (ascending) into `remove`, which has room for `count`, and returns their
 * number. `items` is ascending by step. The newest is never among them; of equal losses the newer
 * is better. */
size_t retention_pick(const struct retention *policy, const struct retention_item *items,
	size_t count, int64_t *remove);

#endif
