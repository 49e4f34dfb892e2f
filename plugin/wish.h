/* SPDX-License-Identifier: Apache-2.0 */
/* A requeue that the controller has not answered yet, kept in the job's folder on this node: the
 * arguments with which muster-requeue is run again when the script ends before the answer, when the
 * controller answers, or when the job has ended. */
#ifndef MUSTER_WISH_H
#define MUSTER_WISH_H

#include <stdbool.h>
#include <stdint.h>

#define WISH_ARGUMENTS 16
#define WISH_SIZE 8192 /* bytes of all arguments */

struct wish {
	char text[WISH_SIZE];
	char *argv[WISH_ARGUMENTS + 1]; /* point into `text`; ends with NULL */
};

enum wish_kind {
	WISH_ASKED,   /* being asked for the first time */
	WISH_IN_VAIN, /* the first request failed; only this kind revives a job that has ended */
};

/* Stores the arguments, unless stored ones may already bring the job back. A step that ended for
 * good (--final) replaces nothing. */
void wish_write(const char *run, uint32_t job, enum wish_kind kind, char *const *argv);

/* False if there is none. */
bool wish_read(const char *run, uint32_t job, enum wish_kind kind, struct wish *wish);

void wish_drop(const char *run, uint32_t job, enum wish_kind kind);

/* If several nodes keep a wish, the node that runs the job's script asks. */
void wish_mark_batch_host(const char *run, uint32_t job);
bool wish_is_batch_host(const char *run, uint32_t job);

#endif
