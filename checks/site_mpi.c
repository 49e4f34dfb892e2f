/* SPDX-License-Identifier: Apache-2.0 */
/* Looks for Slurm's plugin for an MPI type in the folders from which srun loads plugins. That costs
 * nothing, while srun --mpi=list takes as long as an srun and is only asked if the file is not
 * found. */
#include "config.h"

#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "checks/site.h"
#include "common/auto.h"

/* PluginDir as slurm.conf has it: a list with colons. False if it is not set, or the file is
 * elsewhere. */
static bool read_folders(char *out, size_t size)
{
	const char *path = getenv("SLURM_CONF");
	AUTO_FREE char *line = NULL;
	size_t room = 0;
	AUTO_FCLOSE FILE *file = path ? fopen(path, "re") : NULL;
	while (file && getline(&line, &room, file) > 0)
		if (strncasecmp(line, "PluginDir=", 10) == 0) {
			snprintf(out, size, "%.*s", (int)strcspn(line + 10, " \t\r\n#"), line + 10);
			return true;
		}
	return false;
}

/* Slurm's library is in the same folder as its plugins. */
static void guess_folder(char *out, size_t size)
{
	Dl_info info;
	void *symbol = dlsym(RTLD_DEFAULT, "slurm_error");
	const char *path = symbol && dladdr(symbol, &info) && info.dli_fname ? info.dli_fname : "";
	const char *slash = strrchr(path, '/');
	snprintf(out, size, "%.*s", slash ? (int)(slash - path) : 0, path);
}

bool site_mpi_installed(const char *type)
{
	char folders[PATH_MAX], pattern[PATH_MAX + 20], *rest = NULL;
	bool found = false;
	if (!read_folders(folders, sizeof folders))
		guess_folder(folders, sizeof folders);
	for (char *folder = strtok_r(folders, ":", &rest); folder && !found;
		 folder = strtok_r(NULL, ":", &rest)) {
		glob_t files = { 0 };
		snprintf(pattern, sizeof pattern, "%s/mpi_%s*.so", folder, type);
		found = glob(pattern, 0, NULL, &files) == 0 && files.gl_pathc > 0;
		globfree(&files);
	}
	return found;
}
