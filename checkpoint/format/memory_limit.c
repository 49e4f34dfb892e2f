/* SPDX-License-Identifier: Apache-2.0 */
/* Reads /proc/meminfo, and the limit and usage of this process's cgroup and all its parents (Linux,
 * Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst). */
#include "checkpoint/format/memory_limit.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"

#define PATH_SIZE 4096

/* The file names of one cgroup version. */
struct interface {
	const char *type; /* of the mount */
	const char *limit, *usage;
	const char *inactive, *active; /* entries of memory.stat: cached files, descendants included */
};

static const struct interface v1 = { "cgroup", "memory.limit_in_bytes", "memory.usage_in_bytes",
	"total_inactive_file", "total_active_file" };
static const struct interface v2 = { "cgroup2", "memory.max", "memory.current", "inactive_file",
	"active_file" };

static FILE *open_at(const char *root, const char *folder, const char *name)
{
	char path[3 * PATH_SIZE];
	snprintf(path, sizeof path, "%s%s/%s", root, folder, name);
	return fopen(path, "re");
}

/* The number after the word `key` at the start of a line; an empty key means the first line. False
 * if there is none ("max" is not a number). */
static bool read_number(const char *root, const char *folder, const char *name, const char *key,
	uint64_t *value)
{
	char line[300];
	size_t length = strlen(key);
	AUTO_FCLOSE FILE *file = open_at(root, folder, name);
	while (file && fgets(line, sizeof line, file))
		if (strncmp(line, key, length) == 0
			&& (length == 0 || line[length] == ' ' || line[length] == ':'))
			return sscanf(line + length + (line[length] == ':'), "%" SCNu64, value) == 1;
	return false;
}

/* What the cgroup in `folder` leaves; UINT64_MAX when it has no limit. */
static uint64_t left_in(const char *root, const char *folder, const struct interface *interface)
{
	uint64_t limit, usage, inactive = 0, active = 0;
	if (!read_number(root, folder, interface->limit, "", &limit)
		|| !read_number(root, folder, interface->usage, "", &usage))
		return UINT64_MAX;
	read_number(root, folder, "memory.stat", interface->inactive, &inactive);
	read_number(root, folder, "memory.stat", interface->active, &active);
	uint64_t cached = inactive + active < usage ? inactive + active : usage;
	return limit > usage - cached ? limit - (usage - cached) : 0;
}

/* Whether the comma-separated `options` name the memory controller; version 2 has one tree for all
 * controllers. */
static bool has_memory(const char *options, const struct interface *interface)
{
	char padded[PATH_SIZE + 2];
	snprintf(padded, sizeof padded, ",%.*s,", (int)strcspn(options, "\n"), options);
	return interface == &v2 || strstr(padded, ",memory,");
}

/* Where the hierarchy is mounted, and which of its folders is the root of the mount
 * (/proc/self/mountinfo, see proc(5)). */
static bool find_mount(const char *root, const struct interface *interface, char *folder, char *top)
{
	char line[3 * PATH_SIZE], type[64];
	int at;
	AUTO_FCLOSE FILE *file = open_at(root, "/proc/self", "mountinfo");
	while (file && fgets(line, sizeof line, file)) {
		char *rest = strstr(line, " - ");
		if (rest && sscanf(line, "%*s %*s %*s %4095s %4095s", top, folder) == 2
			&& sscanf(rest, " - %63s %*s %n", type, &at) == 1 && strcmp(type, interface->type) == 0
			&& has_memory(rest + at, interface))
			return true;
	}
	return false;
}

/* The path of this process in the hierarchy (/proc/self/cgroup: "ID:CONTROLLERS:PATH"). */
static bool find_path(const char *root, const struct interface *interface, char *path)
{
	char line[2 * PATH_SIZE];
	AUTO_FCLOSE FILE *file = open_at(root, "/proc/self", "cgroup");
	while (file && fgets(line, sizeof line, file)) {
		char *controllers = strchr(line, ':'),
			 *at = controllers ? strchr(controllers + 1, ':') : NULL;
		if (!at)
			continue;
		*at++ = '\0';
		if (interface == &v2 ? controllers[1] == '\0' : has_memory(controllers + 1, interface)) {
			snprintf(path, PATH_SIZE, "%.*s", (int)strcspn(at, "\n"), at);
			return true;
		}
	}
	return false;
}

/* The least that this process's cgroup or one of its parents leaves. */
static uint64_t left_in_tree(const char *root, const struct interface *interface)
{
	char mount[PATH_SIZE], top[PATH_SIZE], path[PATH_SIZE], folder[2 * PATH_SIZE];
	uint64_t least = UINT64_MAX;
	if (!find_mount(root, interface, mount, top) || !find_path(root, interface, path))
		return least;
	size_t skip = strlen(top);
	/* In a container the mount may begin at the container's own folder, while the path starts at
	 * the machine's root. */
	if (strcmp(top, "/") != 0 && strncmp(path, top, skip) == 0
		&& (path[skip] == '/' || path[skip] == '\0'))
		memmove(path, path + skip, strlen(path + skip) + 1);
	for (;;) {
		snprintf(folder, sizeof folder, "%s%s", mount, strcmp(path, "/") == 0 ? "" : path);
		uint64_t left = left_in(root, folder, interface);
		least = left < least ? left : least;
		char *slash = strrchr(path, '/');
		if (!slash)
			return least;
		*slash = '\0';
	}
}

size_t memory_limit_available(const char *root)
{
	uint64_t kilobytes, least = UINT64_MAX;
	if (read_number(root, "/proc", "meminfo", "MemAvailable", &kilobytes))
		least = kilobytes * 1024;
	uint64_t one = left_in_tree(root, &v1), two = left_in_tree(root, &v2);
	least = one < least ? one : least;
	least = two < least ? two : least;
	return least == UINT64_MAX ? 0 : (size_t)least;
}
