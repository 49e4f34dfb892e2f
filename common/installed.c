/* SPDX-License-Identifier: Apache-2.0 */
/* Looks beside libmuster or the program that runs, and in the folders beside its own. */
#include "config.h"

#include "common/installed.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool is_program(const char *path)
{
	return access(path, X_OK) == 0;
}

/* Beside FILE, or in KIND beside its folder. A name that is no whole path, such as a program has
 * from PATH, would be looked for where the process happens to be. */
static bool find_by(const char *file, const char *kind, const char *name, char *path, size_t size)
{
	char real[PATH_MAX];
	if (file[0] != '/' || !realpath(file, real))
		return false;
	*strrchr(real, '/') = '\0';
	return ((size_t)snprintf(path, size, "%s/%s", real, name) < size && is_program(path))
		|| ((size_t)snprintf(path, size, "%s/../%s/%s", real, kind, name) < size
			&& is_program(path));
}

int installed_program(const char *kind, const char *configured, const char *name, char *path,
	size_t size)
{
	static const char here;
	Dl_info info;
	if ((dladdr(&here, &info) && find_by(info.dli_fname, kind, name, path, size))
		|| find_by("/proc/self/exe", kind, name, path, size))
		return 0;
	snprintf(path, size, "%s/%s", configured, name);
	return is_program(path) ? 0 : -1;
}
