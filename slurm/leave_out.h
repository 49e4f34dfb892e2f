/* SPDX-License-Identifier: Apache-2.0 */
/* Asks Slurm not to start a job again on a node that is about to be taken away. The list of such
 * nodes (ExcNodeList) can be changed only while the job waits, so what one attempt has left out is
 * let in again when the next one has ended. */
#ifndef MUSTER_LEAVE_OUT_H
#define MUSTER_LEAVE_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

/* The names of the host list `list` that are not in `without`, then those of `with` that are not
 * there yet, with commas between. NULL is an empty list. malloc'ed; NULL when out of memory or a
 * name is malformed. A pure function. */
char *leave_out_join(const char *list, const char *without, const char *with);

/* What a job's comment says of the nodes that we have left out, after which attempt: false with ""
 * and -1 if nothing. A pure function. */
bool leave_out_noted(const char *comment, char *nodes, size_t size, int *attempt);

/* The comment with that in place of an older word; "" for no nodes. Memory as above. A pure
 * function. */
char *leave_out_note(const char *comment, const char *nodes, int attempt);

/* Once attempt `attempt` of the job is over and it waits for the next: leaves `node` out (NULL:
 * none), and lets in what an earlier attempt had left out. Does nothing to a job that does not
 * wait, or that has to have that node. Returns 1 if the node is left out from now on by this call,
 * 0 if not, with the reason in `why`. */
int leave_out(uint32_t id, int attempt, const char *node, char *why, size_t size, struct err *err);

#endif
