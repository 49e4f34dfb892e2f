/* SPDX-License-Identifier: Apache-2.0 */
/* A removal renames the folder first and looks for a pin only then; pin_set creates the pin first
 * and checks the folder's name only then. So at least one of the two always sees the other. */
#include "checkpoint/directory/pin.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/auto.h"
#include "common/clock.h"
#include "common/io.h"

/* A pinned folder that was renamed for removal gets its name back within this time. */
#define RETURN_SECONDS 5.0
#define POLL_SECONDS 0.05

static int open_folder(const struct ckpt_dir *dir, int64_t step, char name[CKPT_STEP_NAME_SIZE],
	struct err *err)
{
	int fd = openat(dir->fd, ckpt_step_name(step, name),
		O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0 && errno == ENOENT)
		return err_fail(err, EXIT_USAGE,
			"pin: %s has no %s; muster-ckpt ls shows the steps that there are", dir->path, name);
	if (fd < 0)
		return err_fail(err, io_status(errno), "pin: couldn't open %s/%s: %m", dir->path, name);
	return fd;
}

static int fault(const char *verb, const struct ckpt_dir *dir, const char *name, struct err *err)
{
	return err_fail(err, io_status(errno), "pin: couldn't %s %s/%s/" PIN_NAME ": %m", verb,
		dir->path, name);
}

static int create(const struct ckpt_dir *dir, int folder, const char *name, struct err *err)
{
	int fd = openat(folder, PIN_NAME, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
	if (fd < 0)
		return fault("create", dir, name, err);
	bool failed = fsync(fd) < 0;
	int why = errno;
	if (close(fd) < 0 && !failed) {
		failed = true;
		why = errno;
	}
	errno = why;
	if (failed || fsync(folder) < 0)
		return fault("write", dir, name, err);
	return 0;
}

int pin_set(const struct ckpt_dir *dir, int64_t step, struct err *err)
{
	char name[CKPT_STEP_NAME_SIZE];
	struct deadline deadline = deadline_in(RETURN_SECONDS);
	AUTO_CLOSE int fd = open_folder(dir, step, name, err);
	if (fd < 0 || create(dir, fd, name, err) < 0)
		return -1;
	/* If the pin is gone too, it was removed with the folder. */
	while (!ckpt_dir_names(dir, name, fd))
		if (faccessat(fd, PIN_NAME, F_OK, AT_SYMLINK_NOFOLLOW) < 0
			|| !deadline_sleep(deadline, POLL_SECONDS))
			return err_set(err, "pin: %s/%s was being removed before it could be pinned", dir->path,
				name);
	return 0;
}

int pin_clear(const struct ckpt_dir *dir, int64_t step, struct err *err)
{
	char name[CKPT_STEP_NAME_SIZE];
	AUTO_CLOSE int fd = open_folder(dir, step, name, err);
	if (fd < 0)
		return -1;
	if (unlinkat(fd, PIN_NAME, 0) < 0)
		return errno == ENOENT ? 0 : fault("remove", dir, name, err);
	return fsync(fd) < 0 ? fault("remove", dir, name, err) : 0;
}

int pin_is_set(int dirfd, const char *name, struct err *err)
{
	char path[300];
	struct stat st;
	snprintf(path, sizeof path, "%s/" PIN_NAME, name);
	if (fstatat(dirfd, path, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return 1;
	if (errno == ENOENT || errno == ENOTDIR)
		return 0;
	return err_fail(err, io_status(errno), "pin: couldn't look for %s: %m", path);
}
