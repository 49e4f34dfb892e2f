/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a short program as another user, from a privileged and threaded process (slurmstepd). */
#ifndef MUSTER_RUN_AS_USER_H
#define MUSTER_RUN_AS_USER_H

#include <stddef.h>
#include <sys/types.h>

#include "common/err.h"

struct run_user {
	uid_t uid;
	gid_t gid;
	const gid_t *groups;
	size_t group_count;
};

/* Runs argv[0] with exactly `env`, all other descriptors closed and the signals that ask to end ignored, as `user` (as
 * the caller, where that is not root). It is no descendant of the caller, so that Slurm, which kills all descendants of a
 * step's slurmstepd, does not kill it, and its exit status is not known. Whatever it prints goes to `output`, cut to
 * size - 1 bytes. After `seconds` SIGALRM ends it. Returns 0 when it has closed its output, -1 when it did not start or
 * took too long. */
int run_as_user(const struct run_user *user, char *const *argv, char *const *env, double seconds, char *output,
	size_t size, struct err *err);

#endif
