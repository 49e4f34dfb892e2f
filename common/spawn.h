/* SPDX-License-Identifier: Apache-2.0 */
/* Programs that we start: they take signals as a shell's child does, though we block or ignore
 * some. */
#ifndef MUSTER_SPAWN_H
#define MUSTER_SPAWN_H

#include <spawn.h>
#include <sys/types.h>

/* Runs `program` (a path) with `argv` and this process's environment, no signal blocked or ignored.
 * `actions` on descriptors may be NULL; `flags` are more of posix_spawnattr_setflags, such as
 * POSIX_SPAWN_SETPGROUP for a group of its own. Returns 0 with *pid, or the error number, as
 * posix_spawn does: not fork, which copies the page tables of a large process. */
int spawn_program(pid_t *pid, const char *program, const posix_spawn_file_actions_t *actions,
	char *const argv[], int flags);

#endif
