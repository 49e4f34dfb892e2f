/* SPDX-License-Identifier: Apache-2.0 */
/* muster-requeue, the program by which those of users ask Slurm: they are not bound to a release of
 * Slurm themselves. */
#ifndef MUSTER_REQUEUE_PROGRAM_H
#define MUSTER_REQUEUE_PROGRAM_H

#include <stddef.h>

#include "common/err.h"

/* Writes its path. Returns -1 if it is not installed; then err, of status EXIT_USAGE, has the
 * remedy. */
int requeue_program_find(char *path, size_t size, struct err *err);

/* Whether it began to run, by the status of waitpid() or pclose(). Returns 0, or -1 if it could not
 * be loaded, as where its libslurm is not on this node; then err is as above. */
int requeue_program_began(const char *path, int status, struct err *err);

#endif
