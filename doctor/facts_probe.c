/* SPDX-License-Identifier: Apache-2.0 */
/* Looks at /dev, /proc and /sys, asks the kernel. Linked into the plugin too, so it needs libc alone. */
#include "config.h"

#include "doctor/facts_probe.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/auto.h"
#include "common/listen.h"

#define DEVICES 63

/* The device cgroup has its say in access(2) as in open(2). */
void facts_probe_devices(struct facts *facts)
{
	for (int i = 0; i < DEVICES; i++) {
		char path[40];
		struct stat st;
		snprintf(path, sizeof path, "/dev/nvidia%d", i);
		if (stat(path, &st) < 0 || !S_ISCHR(st.st_mode))
			continue;
		facts->devices_present |= (int64_t)1 << i;
		if (faccessat(AT_FDCWD, path, R_OK | W_OK, AT_EACCESS) == 0)
			facts->devices_open |= (int64_t)1 << i;
	}
}

static bool any_in(const char *path)
{
	DIR *folder = opendir(path);
	bool any = false;
	for (struct dirent *entry = folder ? readdir(folder) : NULL; entry; entry = readdir(folder))
		any |= entry->d_name[0] != '.';
	if (folder)
		closedir(folder);
	return any;
}

void facts_probe_limits(struct facts *facts)
{
	cpu_set_t set;
	struct rlimit limit;
	if (sched_getaffinity(0, sizeof set, &set) == 0)
		for (int cpu = 0; cpu < FACTS_CPU_BYTES * 8 && cpu < CPU_SETSIZE; cpu++)
			if (CPU_ISSET(cpu, &set))
				facts->cpus[cpu / 8] |= (uint8_t)(1 << cpu % 8);
	facts->cpus_online = (int)sysconf(_SC_NPROCESSORS_ONLN);
	if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0)
		facts->locked_memory = limit.rlim_cur == RLIM_INFINITY ? INT64_MAX : (int64_t)limit.rlim_cur;
	facts->rdma = any_in("/sys/class/infiniband");
}

void facts_probe_port(struct facts *facts)
{
	int got;
	if (facts->rank != 0 || facts->port <= 0)
		return;
	AUTO_CLOSE int fd = facts->port <= 65535 ? listen_any(facts->port, &got) : -1;
	if (facts->port > 65535)
		snprintf(facts->port_error, sizeof facts->port_error, "it is not a port");
	else if (fd < 0)
		snprintf(facts->port_error, sizeof facts->port_error, "%s", strerror(errno));
}
