/* SPDX-License-Identifier: Apache-2.0 */
/* Whole reads and writes, and the one way in which a file is replaced durably. */
#ifndef MUSTER_IO_H
#define MUSTER_IO_H

#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "common/err.h"

/* Read or write all `size` bytes, across short transfers and EINTR. The readers return the bytes
 * read, fewer than `size` only at the end of the file; all return -1 with errno set on an error. */
ssize_t io_read_full(int fd, void *buffer, size_t size);
ssize_t io_read_at(int fd, void *buffer, size_t size, off_t offset);
int io_write_full(int fd, const void *buffer, size_t size);

/* The same where requests have to reach to the end of a page (O_DIRECT): each asks for all that is
 * missing of `room` bytes, and none follows once there are `size`. May return more than `size`. */
ssize_t io_read_within(int fd, void *buffer, size_t size, size_t room, off_t offset);

/* Reads a whole regular file of at most `limit` bytes. *data is malloc'ed, has a NUL behind its
 * *size bytes, and is the caller's. `dirfd` may be AT_FDCWD. A file that is not there or can't be
 * one of ours: status EXIT_DATA, and errno ENOENT where it is not there; what may pass: EXIT_LOST.
 */
int io_read_file(int dirfd, const char *name, size_t limit, char **data, size_t *size,
	struct err *err);

/* A stream of its own over the folder, so that no other's position is moved; closedir ends it. NULL
 * with errno. */
DIR *io_open_list(int dirfd);

/* fsync of a folder, so that names created, renamed or removed in it are durable. */
int io_sync_dir(int dirfd, struct err *err);

/* Creates or replaces `name` in `dirfd` so that after a crash it holds the old bytes or the new
 * ones, whole: temporary name, write, fsync, close, rename, fsync of the folder. On an error the
 * old file stays and the temporary one is removed; a failed fsync is never retried on the same
 * file. */
int io_replace_durably(int dirfd, const char *name, const void *data, size_t size, struct err *err);

/* What was printed has reached standard output; else err says why. A program's last step, or a full
 * disk goes unnoticed. */
int io_flush_output(struct err *err);

/* Whether an errno of asking for a lock says that this file system has none. */
bool io_has_no_locks(int error_number);

/* Status of an errno of a file: EXIT_LOST for one that may pass (EIO, ENOSPC, ESTALE, ENOTCONN,
 * EMFILE …), else `lasting`, or EXIT_FAULT. */
enum exit_status io_status_or(int error_number, enum exit_status lasting);
enum exit_status io_status(int error_number);

#endif
