/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the folder of a rank's file: in the checkpoint directory where that is on a local file
 * system, else in the node's memory. */
#include "config.h"

#include "telemetry/flight_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <time.h>
#include <unistd.h>

#include "common/auto.h"
#include "common/io.h"

#define FILE_PREFIX "rank-"
#define NODE_PREFIX "standing-"
#define FORGOTTEN_SECONDS \
	(7 * 86400) /* after that the next ranks remove a node's files of killed ranks */
#define FILES_MAX 1000000
#ifndef XFS_SUPER_MAGIC
#define XFS_SUPER_MAGIC 0x58465342
#endif

/* ---- folders ---- */

/* Whether a mapped file is safe there: a store never waits for another machine, and never fails
 * once the file has its blocks. */
static bool is_local(int fd)
{
	struct statfs fs;
	if (fstatfs(fd, &fs) < 0)
		return false;
	switch ((unsigned long)fs.f_type) {
	case EXT4_SUPER_MAGIC:
	case XFS_SUPER_MAGIC:
	case TMPFS_MAGIC:
	case OVERLAYFS_SUPER_MAGIC: return true;
	default: return false;
	}
}

static int open_folder(int dirfd, const char *name)
{
	return openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* Opens the user's own folder in this node's memory, and creates it with `make`. Writes its path to
 * `path`. -1: there is none. */
static int open_node_folder(bool make, char *path, size_t size)
{
	const char *const parents[] = { getenv("XDG_RUNTIME_DIR"), "/dev/shm", "/tmp" };
	for (size_t i = 0; i < sizeof parents / sizeof parents[0]; i++) {
		struct stat st;
		if (!parents[i] || parents[i][0] != '/')
			continue;
		snprintf(path, size, "%s/muster-%u", parents[i], (unsigned)geteuid());
		if (make)
			mkdir(path, 0700);
		int fd = open_folder(AT_FDCWD, path);
		if (fd >= 0 && fstat(fd, &st) == 0 && st.st_uid == geteuid() && (st.st_mode & 077) == 0)
			return fd;
		if (fd >= 0)
			close(fd);
	}
	return -1;
}

/* Visits the names with this prefix until `visit` returns false. */
static void each_file(int dirfd, const char *prefix,
	bool (*visit)(void *arg, int dirfd, const char *name), void *arg)
{
	DIR *stream = io_open_list(dirfd);
	struct dirent *entry;
	while (stream && (entry = readdir(stream)))
		if (strncmp(entry->d_name, prefix, strlen(prefix)) == 0
			&& !visit(arg, dirfd, entry->d_name))
			break;
	if (stream)
		closedir(stream);
}

static bool remove_one(void *arg, int dirfd, const char *name)
{
	if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0)
		unlinkat(dirfd, name, 0);
	return true;
}

static bool remove_forgotten(void *arg, int dirfd, const char *name)
{
	struct stat st;
	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0
		&& st.st_mtime < time(NULL) - FORGOTTEN_SECONDS)
		unlinkat(dirfd, name, 0);
	return true;
}

static bool note_one(void *arg, int dirfd, const char *name)
{
	*(bool *)arg = true;
	return false;
}

void flight_files_begin(int ckpt_dirfd)
{
	bool any = false;
	AUTO_CLOSE int old = open_folder(ckpt_dirfd, FLIGHT_FOLDER);
	if (old >= 0)
		each_file(old, FILE_PREFIX, note_one, &any);
	if (any) {
		AUTO_CLOSE int before = open_folder(ckpt_dirfd, FLIGHT_BEFORE);
		if (before >= 0)
			each_file(before, "", remove_one, NULL);
		unlinkat(ckpt_dirfd, FLIGHT_BEFORE, AT_REMOVEDIR);
		renameat(ckpt_dirfd, FLIGHT_FOLDER, ckpt_dirfd, FLIGHT_BEFORE);
	}
	mkdirat(ckpt_dirfd, FLIGHT_FOLDER, 0755);
}

/* ---- this rank's file ---- */

/* Opens the checkpoint directory's folder; -1 where this rank does not see it. */
static int open_ckpt_folder(const char *dir)
{
	AUTO_CLOSE int dirfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return dirfd < 0 ? -1 : open_folder(dirfd, FLIGHT_FOLDER);
}

static int keep_in(struct flight_file *file, int fd, struct flight_recorder *flight,
	struct err *err)
{
	if (flight_keep(flight, fd, file->name, err) < 0) {
		close(fd);
		return -1;
	}
	file->dirfd = fd;
	return 0;
}

static int keep_on_node(struct flight_file *file, struct flight_recorder *flight,
	const struct ident *ident, struct err *err)
{
	char path[4200];
	int fd = open_node_folder(true, path, sizeof path);
	if (fd < 0)
		return err_set(err,
			"flight recorder: couldn't make a folder below XDG_RUNTIME_DIR, /dev/shm or /tmp");
	each_file(fd, NODE_PREFIX, remove_forgotten, NULL);
	if (ident->job)
		snprintf(file->name, sizeof file->name, NODE_PREFIX "%" PRIu32 ".%" PRIu32 ".%d-%05d",
			ident->job, ident->step, ident->attempt, ident->rank);
	else
		snprintf(file->name, sizeof file->name, NODE_PREFIX "p%d-%05d", (int)getppid(),
			ident->rank);
	return keep_in(file, fd, flight, err);
}

int flight_file_open(struct flight_file *file, struct flight_recorder *flight,
	const struct ident *ident, const char *dir, struct err *err)
{
	*file = (struct flight_file) { 0 };
	int fd = dir ? open_ckpt_folder(dir) : -1;
	snprintf(file->name, sizeof file->name, FILE_PREFIX "%05d", ident->rank);
	if (fd >= 0 && is_local(fd)) {
		file->shared = true;
		return keep_in(file, fd, flight, err);
	}
	if (fd >= 0) {
		file->follow = flight_follow_begin(flight, fd, file->name, err);
		if (file->follow)
			file->copy_dirfd = fd;
		else
			close(fd);
	}
	return keep_on_node(file, flight, ident, err);
}

/* Only succeeds once the last file is gone. */
static void remove_folder(int dirfd)
{
	AUTO_CLOSE int parent = openat(dirfd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (parent >= 0)
		unlinkat(parent, FLIGHT_FOLDER, AT_REMOVEDIR);
}

static void end_file(struct flight_file *file, bool remove)
{
	if (file->follow) {
		flight_follow_end(file->follow, remove);
		if (remove)
			remove_folder(file->copy_dirfd);
		close(file->copy_dirfd);
	}
	if (file->dirfd > 0) {
		if (remove)
			unlinkat(file->dirfd, file->name, 0);
		if (remove && file->shared)
			remove_folder(file->dirfd);
		close(file->dirfd);
	}
	*file = (struct flight_file) { 0 };
}

void flight_file_remove(struct flight_file *file)
{
	end_file(file, true);
}

void flight_file_leave(struct flight_file *file)
{
	end_file(file, false);
}

/* ---- all ranks' files ---- */

static int read_one(int dirfd, const char *name, struct flight_view *view, struct err *err)
{
	unsigned char bytes[FLIGHT_SIZE + 1];
	/* O_NONBLOCK: the name may be a pipe's. */
	AUTO_CLOSE int fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	ssize_t size = fd < 0 ? -1 : read(fd, bytes, sizeof bytes);
	if (size < 0)
		return err_set(err, "couldn't read it: %m");
	return flight_read(bytes, (size_t)size, view, err);
}

struct reading {
	struct flight_list *list;
	size_t room;
	bool out_of_memory;
};

static bool read_next(void *arg, int dirfd, const char *name)
{
	struct reading *reading = arg;
	struct flight_list *list = reading->list;
	struct flight_view view;
	struct err err;
	if (read_one(dirfd, name, &view, &err) < 0) {
		list->damaged++;
		return true;
	}
	if (list->count == reading->room) {
		size_t room = reading->room ? 2 * reading->room : 64;
		struct flight_view *more = realloc(list->views, room * sizeof *more);
		reading->out_of_memory = !more;
		if (!more || room > FILES_MAX)
			return false;
		list->views = more;
		reading->room = room;
	}
	list->views[list->count++] = view;
	return true;
}

static int by_rank(const void *a, const void *b)
{
	const struct flight_view *x = a, *y = b;
	int run = strcmp(x->run, y->run);
	return run ? run : (x->rank > y->rank) - (x->rank < y->rank);
}

static int read_all(int dirfd, const char *prefix, struct flight_list *list, struct err *err)
{
	struct reading reading = { .list = list };
	each_file(dirfd, prefix, read_next, &reading);
	if (reading.out_of_memory)
		return err_set(err, "out of memory");
	if (list->count > 0)
		qsort(list->views, list->count, sizeof *list->views, by_rank);
	return 0;
}

int flight_files_read(const char *dir, struct flight_list *list, struct err *err)
{
	static const char *const folders[] = { FLIGHT_FOLDER, FLIGHT_BEFORE };
	*list = (struct flight_list) { 0 };
	if (!dir) {
		AUTO_CLOSE int fd = open_node_folder(false, list->place, sizeof list->place);
		return fd < 0 ? 0 : read_all(fd, NODE_PREFIX, list, err);
	}
	AUTO_CLOSE int dirfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dirfd < 0)
		return err_fail(err, io_status_or(errno, EXIT_DATA), "couldn't open the folder %s: %m",
			dir);
	for (int i = 0; i < 2 && list->count == 0; i++) {
		AUTO_CLOSE int fd = open_folder(dirfd, folders[i]);
		snprintf(list->place, sizeof list->place, "%s/%s", dir, folders[i]);
		list->before = i > 0;
		if (fd >= 0 && read_all(fd, FILE_PREFIX, list, err) < 0)
			return -1;
	}
	return 0;
}

void flight_list_clear(struct flight_list *list)
{
	free(list->views);
	list->views = NULL;
	list->count = 0;
}

int flight_file_peek(const struct flight_file *file, int rank, struct flight_view *view)
{
	char name[32];
	struct err err;
	snprintf(name, sizeof name, FILE_PREFIX "%05d", rank);
	return file->shared ? read_one(file->dirfd, name, view, &err) : -1;
}
