/* SPDX-License-Identifier: Apache-2.0 */
/* posix_spawnp() resets signals in the child without the cost of fork(). */
#include "config.h"
#include "common/spawn.h"

#include <signal.h>
#include <unistd.h>

int spawn_program(pid_t *pid, const char *program, const posix_spawn_file_actions_t *actions,
	char *const argv[], int flags)
{
	posix_spawnattr_t attributes;
	sigset_t all, none;
	int error = posix_spawnattr_init(&attributes);
	if (error)
		return error;
	sigfillset(&all);
	sigemptyset(&none);
	posix_spawnattr_setflags(&attributes,
		(short)(POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | flags));
	posix_spawnattr_setsigdefault(&attributes, &all);
	posix_spawnattr_setsigmask(&attributes, &none);
	error = posix_spawnp(pid, program, actions, &attributes, argv, environ);
	posix_spawnattr_destroy(&attributes);
	return error;
}
