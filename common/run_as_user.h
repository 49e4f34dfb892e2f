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

/* The supplementary groups that the user database gives to `uid` beside `gid`. *groups is malloc'ed
 * and the caller's, also on an error: then it holds `gid` alone, and err says what is missing. NULL
 * only when out of memory. */
int run_user_groups(uid_t uid, gid_t gid, gid_t **groups, size_t *count, struct err *err);

/* Both: argv[0] runs with exactly `env`, in /, with umask 077, all other descriptors closed, the
 * signals that ask to end ignored, and nothing left of the caller's privileges, as `user` (as the
 * caller, where that is not root). It leads a session of its own and is no descendant of the
 * caller, so that Slurm, which kills all descendants of a step's slurmstepd, does not kill it; its
 * exit status is not known. */

/* Whatever the program prints goes to `output`, cut to size - 1 bytes. After `seconds` it is
 * killed. Returns 0 when it has closed its output, -1 when it did not start or took too long. */
int run_as_user(const struct run_user *user, char *const *argv, char *const *env, double seconds,
	char *output, size_t size, struct err *err);

/* For a program that stays: its standard input is `input`, or /dev/null for -1; the other streams
 * are /dev/null. Returns 0 with *pid when it has been executed, -1 when it has not, also not within
 * `seconds`. */
int start_as_user(const struct run_user *user, char *const *argv, char *const *env, int input,
	double seconds, pid_t *pid, struct err *err);

#endif
