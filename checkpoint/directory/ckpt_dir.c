/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the checkpoint directory, translates between steps and folder names, and lists step folders
 * and sets them aside. */
#include "checkpoint/directory/ckpt_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/format/manifest.h"
#include "common/auto.h"
#include "common/io.h"
#include "common/log.h"

#define PROBE_BYTES 4096
#define DAMAGED_MAX 1000

/* ---- opening ---- */

static int path_fault(const char *verb, const char *path, struct err *err)
{
	return err_fail(err, io_status_or(errno, EXIT_USAGE),
		"checkpoint: couldn't %s %s: %m; give a directory on shared storage that you can write to "
		"and that has room",
		verb, path);
}

/* Creates one folder and makes its name durable. */
static int make_folder(const char *path, struct err *err)
{
	char parent[sizeof((struct ckpt_dir *)0)->path];
	if (mkdir(path, 0755) < 0)
		return errno == EEXIST ? 0 : path_fault("make", path, err);
	snprintf(parent, sizeof parent, "%s", path);
	char *slash = strrchr(parent, '/');
	if (!slash)
		strcpy(parent, ".");
	else
		slash[slash == parent] = '\0';
	AUTO_CLOSE int fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || fsync(fd) < 0)
		return path_fault("fsync", parent, err);
	return 0;
}

static int make_path(const char *path, struct err *err)
{
	char part[sizeof((struct ckpt_dir *)0)->path];
	struct stat st;
	snprintf(part, sizeof part, "%s", path);
	for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		/* A parent that exists may be read-only. */
		if (stat(part, &st) < 0 && make_folder(part, err) < 0)
			return -1;
		*slash = '/';
	}
	return stat(path, &st) == 0 ? 0 : make_folder(path, err);
}

/* Writes and syncs a block, so that a directory which can't be written to, or has no room, is
 * reported before the training begins. */
static int probe(const struct ckpt_dir *dir, struct err *err)
{
	static const char block[PROBE_BYTES];
	char name[300], host[64] = "";
	gethostname(host, sizeof host - 1);
	snprintf(name, sizeof name, ".probe-%s-%d", host, (int)getpid());
	unlinkat(dir->fd, name, 0);
	int fd = openat(dir->fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
	if (fd < 0)
		return path_fault("create a file in", dir->path, err);
	int failed = io_write_full(fd, block, sizeof block) < 0 || fsync(fd) < 0;
	int why = errno;
	if (close(fd) < 0 && !failed) {
		failed = 1;
		why = errno;
	}
	unlinkat(dir->fd, name, 0);
	errno = why;
	return failed ? path_fault("write in", dir->path, err) : 0;
}

/* Copies the path without trailing slashes. */
static int set_path(struct ckpt_dir *dir, const char *path, struct err *err)
{
	dir->fd = -1;
	size_t length = strlen(path);
	while (length > 1 && path[length - 1] == '/')
		length--;
	if (length == 0 || length >= sizeof dir->path)
		return err_fail(err, EXIT_USAGE, "checkpoint: the directory's path is empty or too long");
	snprintf(dir->path, sizeof dir->path, "%.*s", (int)length, path);
	return 0;
}

int ckpt_dir_open_existing(struct ckpt_dir *dir, const char *path, struct err *err)
{
	if (set_path(dir, path, err) < 0)
		return -1;
	dir->fd = open(dir->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir->fd < 0)
		return err_fail(err, io_status_or(errno, EXIT_USAGE),
			"checkpoint: couldn't open %s: %m; give a checkpoint directory", dir->path);
	return 0;
}

int ckpt_dir_open(struct ckpt_dir *dir, const char *path, struct err *err)
{
	if (set_path(dir, path, err) < 0 || make_path(dir->path, err) < 0)
		return -1;
	dir->fd = open(dir->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir->fd < 0)
		return path_fault("open", dir->path, err);
	if (probe(dir, err) < 0) {
		ckpt_dir_close(dir);
		return -1;
	}
	return 0;
}

void ckpt_dir_close(struct ckpt_dir *dir)
{
	if (dir->fd >= 0)
		close(dir->fd);
	dir->fd = -1;
}

/* ---- names ---- */

char *ckpt_step_name(int64_t step, char out[CKPT_STEP_NAME_SIZE])
{
	snprintf(out, CKPT_STEP_NAME_SIZE, "step-%08" PRId64, step);
	return out;
}

int64_t ckpt_step_of(const char *name)
{
	char again[CKPT_STEP_NAME_SIZE];
	int64_t step;
	if (strlen(name) >= CKPT_STEP_NAME_SIZE || sscanf(name, "step-%" SCNd64, &step) != 1 || step < 0
		|| strcmp(ckpt_step_name(step, again), name) != 0)
		return -1;
	return step;
}

static int by_step(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
	return (x > y) - (x < y);
}

/* A folder that changes while it is read in several calls may list an entry twice. Returns how many
 * of the sorted steps are left. */
static size_t drop_twins(int64_t *steps, size_t count)
{
	size_t left = 0;
	for (size_t i = 0; i < count; i++)
		if (left == 0 || steps[i] != steps[left - 1])
			steps[left++] = steps[i];
	return left;
}

int ckpt_dir_steps(const struct ckpt_dir *dir, int64_t **steps, size_t *count, struct err *err)
{
	*steps = NULL;
	*count = 0;
	DIR *stream = io_open_list(dir->fd);
	if (!stream)
		return err_fail(err, io_status(errno), "checkpoint: couldn't list %s: %m", dir->path);
	struct dirent *entry;
	while (errno = 0, (entry = readdir(stream))) {
		int64_t step = ckpt_step_of(entry->d_name);
		if (step < 0)
			continue;
		int64_t *more = realloc(*steps, (*count + 1) * sizeof **steps);
		if (!more) {
			errno = ENOMEM;
			break;
		}
		*steps = more;
		more[(*count)++] = step;
	}
	int why = errno;
	closedir(stream);
	if (why) {
		free(*steps);
		*steps = NULL;
		errno = why;
		return err_fail(err, io_status(why), "checkpoint: couldn't list %s: %m", dir->path);
	}
	if (*count > 0) /* otherwise *steps is NULL */
		qsort(*steps, *count, sizeof **steps, by_step);
	*count = drop_twins(*steps, *count);
	return 0;
}

bool ckpt_dir_names(const struct ckpt_dir *dir, const char *name, int fd)
{
	struct stat named, opened;
	return fstatat(dir->fd, name, &named, AT_SYMLINK_NOFOLLOW) == 0 && fstat(fd, &opened) == 0
		&& named.st_dev == opened.st_dev && named.st_ino == opened.st_ino;
}

struct manifest *ckpt_dir_manifest(const struct ckpt_dir *dir, int64_t step, struct err *err)
{
	char name[CKPT_STEP_NAME_SIZE], path[CKPT_STEP_NAME_SIZE + sizeof "/" MANIFEST_NAME];
	AUTO_FREE char *text = NULL;
	size_t size;
	snprintf(path, sizeof path, "%s/" MANIFEST_NAME, ckpt_step_name(step, name));
	if (io_read_file(dir->fd, path, MANIFEST_SIZE_MAX, &text, &size, err) < 0)
		return NULL;
	struct manifest *manifest = manifest_parse(text, size, NULL, err);
	errno = 0;
	return manifest;
}

/* ---- set aside ---- */

int ckpt_dir_set_aside(const struct ckpt_dir *dir, int64_t step, const char *why, struct err *err)
{
	char name[CKPT_STEP_NAME_SIZE], aside[CKPT_STEP_NAME_SIZE + 32];
	struct stat st;
	ckpt_step_name(step, name);
	for (int n = 1; n <= DAMAGED_MAX; n++) {
		snprintf(aside, sizeof aside, "%s.damaged-%d", name, n);
		if (fstatat(dir->fd, aside, &st, AT_SYMLINK_NOFOLLOW) == 0)
			continue;
		if (renameat(dir->fd, name, dir->fd, aside) == 0) {
			log_error(
				"checkpoint: %s/%s is DAMAGED (%s); it is kept as %s and an older one is used",
				dir->path, name, why, aside);
			return io_sync_dir(dir->fd, err);
		}
		if (errno != EEXIST && errno != ENOTEMPTY)
			break;
	}
	return err_fail(err, io_status(errno), "checkpoint: couldn't set the damaged %s/%s aside: %m",
		dir->path, name);
}
