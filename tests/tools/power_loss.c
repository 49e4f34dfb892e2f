/* SPDX-License-Identifier: Apache-2.0 */
/* A layer for LD_PRELOAD that knows what would outlive a power loss: fsync of a file keeps its
 * bytes, fsync of a folder its entries, and nothing else keeps anything. The calls go no further:
 * the disk itself is not what is tested. POWER_LOSS_UNDER    the folder that is watched, without a
 * symbolic link in its path; beside it is the folder UNDER.store for what is durable
 * (power_store.h), which `power_cut none UNDER` makes POWER_LOSS_SWALLOW  a pattern (fnmatch) of
 * paths below UNDER, those of folders with a '/' at the end, whose fsync is forgotten: what a test
 * has to find */
#include "config.h"
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/tools/power_store.h"

#define HOOK __attribute__((visibility("default")))

HOOK int fsync(int fd);
HOOK int fdatasync(int fd);
HOOK int syncfs(int fd);
HOOK void sync(void);

static void give_up(const char *what)
{
	fprintf(stderr, "power_loss: couldn't %s: %m\n", what);
	abort();
}

/* Whether the descriptor's path lies below UNDER; its path from there on, with a '/' after a
 * folder's. */
static bool is_watched(int fd, bool folder, char relative[4200])
{
	const char *under = getenv("POWER_LOSS_UNDER");
	char link[64], path[4096];
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	ssize_t length = readlink(link, path, sizeof path - 1);
	if (!under || length < 0)
		return false;
	path[length] = '\0';
	size_t prefix = strlen(under);
	if (strncmp(path, under, prefix) != 0 || (path[prefix] != '/' && path[prefix] != '\0'))
		return false;
	snprintf(relative, 4200, "%s%s", path[prefix] ? path + prefix + 1 : "", folder ? "/" : "");
	return true;
}

static void record(int fd, bool folder)
{
	const char *swallow = getenv("POWER_LOSS_SWALLOW");
	char relative[4200], path[4200];
	if (!is_watched(fd, folder, relative) || (swallow && fnmatch(swallow, relative, 0) == 0))
		return;
	close(POWER_MARK_PAUSE);
	snprintf(path, sizeof path, "%s.store", getenv("POWER_LOSS_UNDER"));
	int store = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (store < 0)
		give_up("open the store");
	if ((folder ? power_record_folder(store, fd) : power_record_file(store, fd)) < 0)
		give_up("record what is durable");
	close(store);
	close(POWER_MARK_RESUME);
}

int fsync(int fd)
{
	struct stat st;
	if (fstat(fd, &st) < 0)
		return -1;
	int saved = errno;
	if (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode))
		record(fd, S_ISDIR(st.st_mode));
	errno = saved;
	return 0;
}

int fdatasync(int fd)
{
	return fsync(fd);
}

/* Nobody here should lean on these: they would hide which file was meant. */
int syncfs(int fd)
{
	(void)fd;
	give_up("tell what syncfs is for");
	return -1;
}

void sync(void)
{
	give_up("tell what sync is for");
}
