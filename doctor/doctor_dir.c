/* SPDX-License-Identifier: Apache-2.0 */
/* Rank 0 makes a file, which all nodes must see. No node has looked for its name before, so no
 * negative cache entry hides it. */
#include "config.h"

#include "doctor/doctor_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/auto.h"
#include "common/io.h"

#define PROBE_BYTES (256 * 1024) /* more than a file system keeps in an inode or a last block */

/* The directory, or its nearest parent that exists. */
static void existing(const char *dir, char *out, size_t size)
{
	struct stat st;
	snprintf(out, size, "%s", dir);
	while (stat(out, &st) < 0 && errno == ENOENT) {
		char *slash = strrchr(out, '/');
		if (slash && slash[1] == '\0' && slash > out) {
			*slash = '\0';
			continue;
		}
		if (!slash)
			snprintf(out, size, ".");
		else
			slash[slash == out] = '\0';
	}
}

static void mark_name(const char *dir, const char *word, int rank, char *out, size_t size)
{
	char folder[PATH_MAX];
	existing(dir, folder, sizeof folder);
	if (rank < 0)
		snprintf(out, size, "%s/.muster-doctor-%s", folder, word);
	else
		snprintf(out, size, "%s/.muster-doctor-%s-%d", folder, word, rank);
}

/* Makes a file of `size` bytes and fsyncs it. Returns 0, or an errno with no file left. */
static int make_file(const char *path, size_t size)
{
	AUTO_FREE char *zeros = calloc(1, size + 1);
	AUTO_CLOSE int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return errno;
	int error = !zeros ? ENOMEM : io_write_full(fd, zeros, size) < 0 || fsync(fd) < 0 ? errno : 0;
	if (error)
		unlink(path);
	return error;
}

int doctor_dir_mark(const char *dir, const char *word)
{
	char path[PATH_MAX + 100];
	mark_name(dir, word, -1, path, sizeof path);
	return make_file(path, 0) == 0 ? 0 : -1;
}

void doctor_dir_unmark(const char *dir, const char *word)
{
	char path[PATH_MAX + 100];
	mark_name(dir, word, -1, path, sizeof path);
	unlink(path);
}

void doctor_dir_look(struct facts *facts, const char *dir, const char *word, bool marked)
{
	char path[PATH_MAX + 100], folder[PATH_MAX];
	struct statvfs space;
	mark_name(dir, word, -1, path, sizeof path);
	if (marked && access(path, F_OK) < 0) {
		facts->dir_differs = true;
		return;
	}
	existing(dir, folder, sizeof folder);
	mark_name(dir, word, facts->rank, path, sizeof path);
	int error = make_file(path, PROBE_BYTES);
	if (error == 0)
		unlink(path);
	else
		snprintf(facts->dir_error, sizeof facts->dir_error, "couldn't write in %.200s: %s", folder,
			strerror(error));
	facts->dir_full = error == ENOSPC || error == EDQUOT;
	if (statvfs(folder, &space) == 0)
		facts->dir_free = (int64_t)space.f_bavail * (int64_t)space.f_frsize;
}
