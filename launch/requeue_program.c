/* SPDX-License-Identifier: Apache-2.0 */
/* Only its path and its exit status are known here; what it says is its callers' business. */
#include "config.h"

#include "launch/requeue_program.h"

#include <sys/wait.h>

#include "common/installed.h"

#define NOT_LOADED 127 /* from the dynamic loader, and from a shell */

int requeue_program_find(char *path, size_t size, struct err *err)
{
	if (installed_program("libexec", LIBEXECDIR, "muster-requeue", path, size) == 0)
		return 0;
	return err_fail(err, EXIT_USAGE,
		"requeue: couldn't find %.300s: install it (make install, or Muster's package "
		"muster-ckptd)",
		path);
}

int requeue_program_began(const char *path, int status, struct err *err)
{
	if (!WIFEXITED(status) || WEXITSTATUS(status) != NOT_LOADED)
		return 0;
	return err_fail(err, EXIT_USAGE,
		"requeue: couldn't load %.300s: it was built for another release of Slurm than this node "
		"has: build Muster for this one, or install its package muster-ckptd",
		path);
}
