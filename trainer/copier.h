/* SPDX-License-Identifier: Apache-2.0 */
/* Copies memory while others compute: a thread that only gets time nobody else wants, and, for what is left when the copy is
 * needed, everybody. */
#ifndef MUSTER_COPIER_H
#define MUSTER_COPIER_H

#include <stdbool.h>
#include <stddef.h>

#include "common/err.h"

#define COPIER_PIECE ((size_t)256 << 10) /* bytes; short, so that nobody waits long for one that a thread without time has begun */

struct copier_piece {
	const char *from; /* NULL: only makes whole pages of `to` be there, in zeros */
	char *to;
	size_t bytes;
};

struct copier;

/* Starts the thread. */
struct copier *copier_start(struct err *err);

/* Begins to copy, after what is under way. The pieces are borrowed, and what they are copied from must not change, until
 * copier_finish has returned. This and copier_finish are for one thread. */
void copier_begin(struct copier *copier, const struct copier_piece *pieces, size_t count);

/* Returns when all is copied: helps with all compute threads. Nothing under way: returns at once. */
void copier_finish(struct copier *copier);

/* Waits without helping, from any other thread, for the copy that was begun last. */
void copier_wait(struct copier *copier);

/* Finishes what is under way. NULL is allowed. */
void copier_stop(struct copier *copier);

#endif
