/* SPDX-License-Identifier: Apache-2.0 */
/* Complete reads and writes, and the one way to replace a file durably. */
#ifndef MUSTER_IO_H
#define MUSTER_IO_H

#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "common/err.h"

/* Read or write all `size` bytes, through short transfers and EINTR. The readers return the number
 * of bytes read, less than `size` only at the end of the file. All return -1 with errno on an
 * error. */
ssize_t io_read_full(int fd, void *buffer, size_t size);
ssize_t io_read_at(int fd, void *buffer, size_t size, off_t offset);
int io_write_full(int fd, const void *buffer, size_t size);

/* The same for O_DIRECT, where a request must end at a page: each request asks for all that is
 * missing of `room` bytes, and none follows once `size` bytes have come. May return more than
 * `size`. */
ssize_t io_read_within(int fd, void *buffer, size_t size, size_t room, off_t offset);

/* Reads a whole regular file of at most `limit` bytes. *data is malloc'ed, has a NUL after its
 * *size bytes, and is the caller's. `dirfd` may be AT_FDCWD. Status EXIT_DATA if the file is
 * missing (errno ENOENT) or can't be one of ours, EXIT_LOST if the error may pass. */
int io_read_file(int dirfd, const char *name, size_t limit, char **data, size_t *size,
	struct err *err);

/* The same without the first `from` bytes; `limit` is for the others. errno ESTALE, status
 * EXIT_LOST if the file is shorter. */
int io_read_rest(int dirfd, const char *name, off_t from, size_t limit, char **data, size_t *size,
	struct err *err);

/* Opens a folder's listing through a descriptor of its own, so that no other position moves;
 * closedir ends it. NULL with errno. */
DIR *io_open_list(int dirfd);

/* fsyncs a folder: names created, renamed or removed in it become durable. */
int io_sync_dir(int dirfd, struct err *err);

/* Creates or replaces `name` in `dirfd`; after a crash it holds all old or all new bytes. The
 * steps: temporary name, write, fsync, close, rename, fsync of the folder. On an error the old file
 * stays and the temporary one is removed. A failed fsync is never retried on the same file. */
int io_replace_durably(int dirfd, const char *name, const void *data, size_t size, struct err *err);

/* Flushes standard output. A program must call this last, or a full disk goes unnoticed. */
int io_flush_output(struct err *err);

/* Whether this errno of a lock request means that the file system has no locks. */
bool io_has_no_locks(int error_number);

/* The exit status for an errno of a file operation: EXIT_LOST if it may pass (EIO, ENOSPC, ESTALE,
 * ENOTCONN, EMFILE …), else `lasting`. io_status() takes EXIT_FAULT for `lasting`. */
enum exit_status io_status_or(int error_number, enum exit_status lasting);
enum exit_status io_status(int error_number);

#endif
