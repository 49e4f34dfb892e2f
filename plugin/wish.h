/* SPDX-License-Identifier: Apache-2.0 */
/* A requeue that could not be asked for yet, in the job's folder on this node: what muster-requeue is to be asked when the controller
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

/* Keeps the arguments, if none are kept that may bring the job back: a step that ended for good (--final) takes nobody's place. */
void wish_write(const char *run, uint32_t job, char *const *argv);

/* False when there is none. */
bool wish_read(const char *run, uint32_t job, struct wish *wish);

void wish_drop(const char *run, uint32_t job);

/* Of the nodes of a job that keep one, that on which its script runs asks. */
void wish_mark_batch_host(const char *run, uint32_t job);
bool wish_is_batch_host(const char *run, uint32_t job);

#endif
