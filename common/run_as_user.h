/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a program as another user, from a privileged process that may have threads (slurmstepd). */
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

/* The supplementary groups of `uid` in the user database, in addition to `gid`. *groups is
 * malloc'ed and the caller's, also on an error: then it holds `gid` alone, and err says why. NULL
 * only when out of memory. */
int run_user_groups(uid_t uid, gid_t gid, gid_t **groups, size_t *count, struct err *err);

/* Both functions: argv[0] runs with exactly `env`, in /, with umask 077, all other descriptors
 * closed, the termination signals ignored, and none of the caller's privileges: as `user`, or as
 * the caller if that is not root. It leads its own session and is not a descendant of the caller,
 * since Slurm kills all descendants of a step's slurmstepd. Its exit status is unknown. */

/* The program's output goes to `output`, cut to size - 1 bytes. After `seconds` the program is
 * killed. Returns 0 once it has closed its output, -1 if it did not start or took too long. */
int run_as_user(const struct run_user *user, char *const *argv, char *const *env, double seconds,
	char *output, size_t size, struct err *err);

/* For a long-running program: its standard input is `input`, or /dev/null for -1; its other streams
 * are /dev/null. Returns 0 with *pid once it has been executed, -1 if it was not executed within
 * `seconds`. */
int start_as_user(const struct run_user *user, char *const *argv, char *const *env, int input,
	double seconds, pid_t *pid, struct err *err);

#endif
