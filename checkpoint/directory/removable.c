/* SPDX-License-Identifier: Apache-2.0 */
/* A reader holds a read lock on the manifest; a removal tries to get the write lock and does not
 * wait. These are locks of open file descriptions, which the kernel or the file server releases
 * when their holder is gone. */
#include "config.h"
#include "checkpoint/directory/removable.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/format/manifest.h"
#include "common/auto.h"
#include "common/io.h"

#define PATH_SIZE (CKPT_STEP_NAME_SIZE + sizeof "/" + 256)

/* 0 when locked, or when there are no locks here; -1 with errno. */
static int set_lock(int fd, short type)
{
	struct flock lock = { .l_type = type, .l_whence = SEEK_SET };
	return fcntl(fd, F_OFD_SETLK, &lock) < 0 && !io_has_no_locks(errno) ? -1 : 0;
}

static bool is_held(int error_number)
{
	return error_number == EAGAIN || error_number == EACCES;
}

int removable_hold(const struct ckpt_dir *dir, const char *name, int folder, int manifest,
	struct err *err)
{
	/* If the name is not the folder's any more, it was taken away between the open and the lock. */
	if ((set_lock(manifest, F_RDLCK) < 0 && is_held(errno)) || !ckpt_dir_names(dir, name, folder))
		return err_fail(err, EXIT_LOST, "checkpoint: it is being removed");
	return 0;
}

static char *path_in(int64_t step, const char *file, char path[PATH_SIZE])
{
	char name[CKPT_STEP_NAME_SIZE];
	snprintf(path, PATH_SIZE, "%s/%s", ckpt_step_name(step, name), file);
	return path;
}

/* Whether the checkpoint is whole as far as can be seen without reading its data: its manifest is
 * valid, and each file exists with the right size. */
static bool looks_whole(const struct ckpt_dir *dir, int64_t step)
{
	char path[PATH_SIZE];
	AUTO_FREE char *text = NULL;
	size_t size;
	struct stat st;
	if (io_read_file(dir->fd, path_in(step, MANIFEST_NAME, path), MANIFEST_SIZE_MAX, &text, &size,
			NULL)
		< 0)
		return false;
	struct manifest *manifest = manifest_parse(text, size, NULL, NULL);
	bool whole = manifest && manifest->step == step;
	for (size_t i = 0; whole && i < manifest->file_count; i++)
		whole =
			fstatat(dir->fd, path_in(step, manifest->files[i].name, path), &st, AT_SYMLINK_NOFOLLOW)
				== 0
			&& S_ISREG(st.st_mode) && (uint64_t)st.st_size == manifest->files[i].size;
	manifest_destroy(manifest);
	return whole;
}

static bool newer_is_whole(const struct ckpt_dir *dir, int64_t step)
{
	AUTO_FREE int64_t *steps = NULL;
	size_t count;
	if (ckpt_dir_steps(dir, &steps, &count, NULL) < 0)
		return false;
	for (size_t i = count; i-- > 0 && steps[i] > step;)
		if (looks_whole(dir, steps[i]))
			return true;
	return false;
}

int removable_check(const struct ckpt_dir *dir, int64_t step, int *lock, struct err *err)
{
	char path[PATH_SIZE];
	*lock = -1;
	if (!newer_is_whole(dir, step)) {
		err_fail(err, EXIT_LOST,
			"checkpoint: step %" PRId64 " stays: no newer one is known to be whole", step);
		return 0;
	}
	/* A checkpoint without a manifest, or with one that we may not write, is removed without a
	 * lock. */
	*lock = openat(dir->fd, path_in(step, MANIFEST_NAME, path),
		O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
	if (*lock < 0 ? io_status(errno) != EXIT_LOST : set_lock(*lock, F_WRLCK) == 0)
		return 1;
	int why = errno;
	if (*lock >= 0)
		close(*lock);
	*lock = -1;
	err_fail(err, is_held(why) ? EXIT_FAULT : EXIT_LOST, "checkpoint: step %" PRId64 " stays: %s%s",
		step, is_held(why) ? "it is being read" : "whether it is being read can't be known: ",
		is_held(why) ? "" : strerror(why));
	return 0;
}
