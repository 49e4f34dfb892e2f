/* SPDX-License-Identifier: Apache-2.0 */
/* In slurmd's job prolog (root, on each node, before the job's first step): clears what a power failure left behind.
 *
 * slurmstepd's PMIx server listens on SPOOL/stepd.slurm.pmix.JOB.STEP. A requeued job has the same ids again, and on a
 * node that died under its last attempt the old socket is still there: Slurm 22.05 then fails with "Address already in
 * use", the step does not start, and srun even exits with 0. */
#include "config.h"

#include <dlfcn.h>
#include <errno.h>
#include <glob.h>
#include <slurm/slurm.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/auto.h"
#include "plugin/spank_contexts.h"

/* SlurmdSpoolDir as a pattern: %n and %h, which stand for this node, match any, since only dead sockets are removed.
 * slurm_conf is no public symbol, but the plugin only loads into the Slurm release that it was built for. */
static bool spool_pattern(char *pattern, size_t size)
{
	const slurm_conf_t *conf = dlsym(RTLD_DEFAULT, "slurm_conf");
	const char *from = conf ? conf->slurmd_spooldir : NULL;
	size_t used = 0;
	if (!from || from[0] != '/')
		return false;
	for (; *from; from++) {
		bool place = from[0] == '%' && (from[1] == 'n' || from[1] == 'h');
		if (used + 1 >= size)
			return false;
		pattern[used++] = place ? '*' : *from;
		from += place;
	}
	pattern[used] = '\0';
	return true;
}

/* Whether a path is a socket on which nobody listens. */
static bool is_dead_socket(const char *path)
{
	struct stat st;
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	if (lstat(path, &st) < 0 || !S_ISSOCK(st.st_mode) || strlen(path) >= sizeof address.sun_path)
		return false;
	strcpy(address.sun_path, path);
	AUTO_CLOSE int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	return fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) < 0 && errno == ECONNREFUSED;
}

int spank_job_prolog(spank_t spank)
{
	uint32_t job;
	char spool[400], pattern[500];
	glob_t found = { 0 };
	if (spank_get_item(spank, S_JOB_ID, &job) != ESPANK_SUCCESS || !spool_pattern(spool, sizeof spool))
		return 0;
	snprintf(pattern, sizeof pattern, "%s/stepd.slurm.pmix.%u.*", spool, job);
	if (glob(pattern, GLOB_NOSORT, NULL, &found) != 0)
		return 0;
	for (size_t i = 0; i < found.gl_pathc; i++)
		if (is_dead_socket(found.gl_pathv[i]) && unlink(found.gl_pathv[i]) == 0)
			slurm_info("muster: removed %s, left by an earlier attempt of this job", found.gl_pathv[i]);
	globfree(&found);
	return 0;
}
