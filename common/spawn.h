/* SPDX-License-Identifier: Apache-2.0 */
/* Starts programs with default signal handling, as a shell would, though this process blocks or
 * ignores some signals. */
#ifndef MUSTER_SPAWN_H
#define MUSTER_SPAWN_H

#include <spawn.h>
#include <sys/types.h>

/* Runs `program` (a path, or a name in PATH) with `argv` and this process's environment, no signal
 * blocked or ignored. `actions` on descriptors may be NULL. `flags` are further flags of
 * posix_spawnattr_setflags, such as POSIX_SPAWN_SETPGROUP for its own process group. Returns 0 with
 * *pid, or an error number. Like posix_spawn, and unlike fork, it does not copy the page tables of
 * a large process. */
int spawn_program(pid_t *pid, const char *program, const posix_spawn_file_actions_t *actions,
	char *const argv[], int flags);

#endif
