/* SPDX-License-Identifier: Apache-2.0 */
/* Which checkpoints may go: a pure function of the steps that are there. */
#ifndef MUSTER_RETENTION_H
#define MUSTER_RETENTION_H

#include <stddef.h>
#include <stdint.h>

struct retention {
	size_t keep_last;   /* the newest so many stay; 0 keeps all */
	int64_t keep_every; /* a step that is a multiple of this stays for ever; 0: none does so */
};

/* Puts the steps to remove (ascending) into `remove`, which has room for `count`, and returns their number. `steps` is
 * ascending. The newest step is never among them. */
size_t retention_pick(const struct retention *policy, const int64_t *steps, size_t count, int64_t *remove);

#endif
