/* SPDX-License-Identifier: Apache-2.0 */
/* A requeue that the controller has not answered yet, in the job's folder on this node: what
 * muster-requeue is to be asked when the script ends before the answer, when the controller
 * answers, or when the job has ended. */
#ifndef MUSTER_WISH_H
#define MUSTER_WISH_H

#include <stdbool.h>
#include <stdint.h>

#define WISH_ARGUMENTS 16
#define WISH_SIZE 8192 /* bytes of all arguments */

struct wish {
	char text[WISH_SIZE];
	char *argv[WISH_ARGUMENTS + 1]; /* into text, ended by NULL */
};

enum wish_kind {
	WISH_ASKED,   /* is being asked for the first time */
	WISH_IN_VAIN, /* could not be asked for then; only such a one may bring back a job that has
					 ended */
};

/* Keeps the arguments, if none are kept that may bring the job back: a step that ended for good
 * (--final) takes nobody's place. */
void wish_write(const char *run, uint32_t job, enum wish_kind kind, char *const *argv);

/* False when there is none. */
bool wish_read(const char *run, uint32_t job, enum wish_kind kind, struct wish *wish);

void wish_drop(const char *run, uint32_t job, enum wish_kind kind);

/* Of the nodes of a job that keep one, that on which its script runs asks. */
void wish_mark_batch_host(const char *run, uint32_t job);
bool wish_is_batch_host(const char *run, uint32_t job);

#endif
