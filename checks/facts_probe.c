/* SPDX-License-Identifier: Apache-2.0 */
/* Reads /dev, /proc and /sys, and asks the kernel. The plugin links this too, so it needs only
 * libc. */
#include "config.h"

#include "checks/facts_probe.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/auto.h"
#include "common/listen.h"

#define DEVICES 63

/* The device cgroup applies to access(2) as it does to open(2). */
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
		facts->locked_memory =
			limit.rlim_cur == RLIM_INFINITY ? INT64_MAX : (int64_t)limit.rlim_cur;
	facts->rdma = any_in("/sys/class/infiniband");
}

static bool is_listed(const char *list, const char *name)
{
	size_t length = strlen(name);
	for (; *list; list += strcspn(list, " "), list += *list == ' ')
		if (strncmp(list, name, length) == 0 && (list[length] == ' ' || !list[length]))
			return true;
	return false;
}

void facts_probe_interfaces(struct facts *facts)
{
	struct ifaddrs *list = NULL;
	char *out = facts->interfaces;
	if (getifaddrs(&list) < 0)
		return;
	for (const struct ifaddrs *at = list; at; at = at->ifa_next) {
		size_t used = strlen(out);
		bool has_address = at->ifa_addr
			&& (at->ifa_addr->sa_family == AF_INET || at->ifa_addr->sa_family == AF_INET6);
		if (has_address && at->ifa_flags & IFF_UP && !is_listed(out, at->ifa_name)
			&& used + strlen(at->ifa_name) + 2 < sizeof facts->interfaces)
			snprintf(out + used, sizeof facts->interfaces - used, "%s%s", used ? " " : "",
				at->ifa_name);
	}
	freeifaddrs(list);
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
