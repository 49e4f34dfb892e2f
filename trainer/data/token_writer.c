/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a token file of any length, whole or not at all. */
#include "config.h" /* _GNU_SOURCE, for renameat2 */

#include "trainer/data/token_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/auto.h"
#include "common/bytes.h"
#include "common/io.h"
#include "trainer/data/token_file.h"

#define BLOCK 65536 /* tokens */

struct token_writer {
	char *path;
	char name[256];      /* last part of the path */
	char temporary[300]; /* "" before the file exists and after the commit */
	int dirfd, fd;
	bool replace;
	size_t offset; /* of the first token, in bytes */
	size_t width;  /* bytes of a token */
	uint64_t tokens;
};

static int write_error(const struct token_writer *writer, const char *verb, struct err *err)
{
	return err_fail(err, io_status(errno), "write: couldn't %s %s: %m", verb, writer->path);
}

/* Opens the path's folder, and keeps the last part of the path as the name. */
static int open_folder(struct token_writer *writer, struct err *err)
{
	AUTO_FREE char *for_folder = strdup(writer->path);
	AUTO_FREE char *for_name = strdup(writer->path);
	if (!for_folder || !for_name)
		return err_set(err, "write: no memory to open %s", writer->path);
	const char *folder = dirname(for_folder);
	const char *name = basename(for_name);
	if (strlen(name) >= sizeof writer->name)
		return err_fail(err, EXIT_USAGE, "write: couldn't create %s: the name is too long",
			writer->path);
	strcpy(writer->name, name);
	writer->dirfd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (writer->dirfd < 0)
		return err_fail(err, io_status(errno), "write: couldn't open the folder %s: %m", folder);
	return 0;
}

static int check_target(const struct token_writer *writer, struct err *err)
{
	struct stat st;
	if (fstatat(writer->dirfd, writer->name, &st, 0) < 0)
		return errno == ENOENT ? 0 : write_error(writer, "look at", err);
	if (!S_ISREG(st.st_mode))
		return err_fail(err, EXIT_USAGE, "write: couldn't write %s: not a regular file",
			writer->path);
	if (!writer->replace)
		return err_fail(err, EXIT_USAGE, "write: couldn't write %s: it exists; --force replaces it",
			writer->path);
	return 0;
}

static int create_temporary(struct token_writer *writer, struct err *err)
{
	char host[64] = "";
	static const unsigned char no_header[TOKEN_FILE_HEADER];
	gethostname(host, sizeof host - 1);
	snprintf(writer->temporary, sizeof writer->temporary, ".%.150s.%.60s.%d", writer->name, host,
		(int)getpid());
	unlinkat(writer->dirfd, writer->temporary, 0); /* left by a killed process with the same pid */
	writer->fd =
		openat(writer->dirfd, writer->temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (writer->fd < 0) {
		writer->temporary[0] = '\0';
		return write_error(writer, "create", err);
	}
	return io_write_full(writer->fd, no_header, writer->offset) < 0
		? write_error(writer, "write", err)
		: 0;
}

static int check_width(const struct token_writer *writer, struct err *err)
{
	return writer->width > 2 && writer->offset == 0
		? err_fail(err, EXIT_USAGE,
			"write: couldn't write %s: raw tokens have 16 bits, and this vocabulary needs more; a "
			"name that ends in .bin gets 32",
			writer->path)
		: 0;
}

struct token_writer *token_writer_create(const char *path, int32_t vocabulary, bool replace,
	struct err *err)
{
	struct token_writer *writer = calloc(1, sizeof *writer);
	if (!writer) {
		err_set(err, "write: no memory to open %s", path);
		return NULL;
	}
	*writer = (struct token_writer) { .path = strdup(path),
		.dirfd = -1,
		.fd = -1,
		.replace = replace,
		.width = vocabulary > UINT16_MAX + 1 ? 4 : 2,
		.offset = token_file_is_raw(path) ? 0 : TOKEN_FILE_HEADER };
	if (!writer->path)
		err_set(err, "write: no memory to open %s", path);
	else if (check_width(writer, err) == 0 && open_folder(writer, err) == 0
		&& check_target(writer, err) == 0 && create_temporary(writer, err) == 0)
		return writer;
	token_writer_destroy(writer);
	return NULL;
}

int token_writer_add_ids(struct token_writer *writer, const int32_t *ids, size_t count,
	struct err *err)
{
	unsigned char out[4 * 8192];
	for (size_t done = 0; done < count;) {
		size_t n = count - done < 8192 ? count - done : 8192;
		for (size_t i = 0; i < n; i++)
			if (writer->width == 4)
				bytes_put_le32(out + 4 * i, (uint32_t)ids[done + i]);
			else
				bytes_put_le16(out + 2 * i, (uint16_t)ids[done + i]);
		if (io_write_full(writer->fd, out, writer->width * n) < 0)
			return write_error(writer, "write", err);
		done += n;
		writer->tokens += n;
	}
	return 0;
}

int token_writer_add(struct token_writer *writer, const unsigned char *bytes, size_t count,
	struct err *err)
{
	int32_t ids[8192];
	for (size_t done = 0, n; done < count; done += n) {
		n = count - done < 8192 ? count - done : 8192;
		for (size_t i = 0; i < n; i++)
			ids[i] = bytes[done + i];
		if (token_writer_add_ids(writer, ids, n, err) < 0)
			return -1;
	}
	return 0;
}

uint64_t token_writer_tokens(const struct token_writer *writer)
{
	return writer->tokens;
}

uint64_t token_writer_most(const struct token_writer *writer)
{
	return writer->offset ? TOKEN_FILE_MOST : UINT64_MAX;
}

int token_writer_move_tail(struct token_writer *from, struct token_writer *to, uint64_t count,
	struct err *err)
{
	AUTO_FREE unsigned char *block = malloc(from->width * BLOCK);
	off_t at = (off_t)(from->offset + from->width * (from->tokens - count)), end = at;
	if (!block)
		return err_set(err, "write: no memory to fill %s", to->path);
	if (lseek(from->fd, at, SEEK_SET) < 0)
		return write_error(from, "read back", err);
	for (uint64_t left = count; left > 0;) {
		size_t n = left < BLOCK ? (size_t)left : BLOCK;
		ssize_t got = io_read_full(from->fd, block, from->width * n);
		if (got < 0)
			return write_error(from, "read back", err);
		if ((size_t)got != from->width * n)
			return err_set(err, "write: %s was cut short while it was written", from->path);
		if (io_write_full(to->fd, block, from->width * n) < 0)
			return write_error(to, "write", err);
		left -= n;
	}
	if (ftruncate(from->fd, end) < 0 || lseek(from->fd, end, SEEK_SET) < 0)
		return write_error(from, "shorten", err);
	from->tokens -= count;
	to->tokens += count;
	return 0;
}

bool token_writer_same(const struct token_writer *a, const struct token_writer *b)
{
	struct stat x, y;
	return fstat(a->dirfd, &x) == 0 && fstat(b->dirfd, &y) == 0 && x.st_dev == y.st_dev
		&& x.st_ino == y.st_ino && strcmp(a->name, b->name) == 0;
}

/* NFS and some other file systems lack a rename that refuses to replace; there the check at the
 * start must do. */
static int rename_new(const struct token_writer *writer)
{
	if (renameat2(writer->dirfd, writer->temporary, writer->dirfd, writer->name, RENAME_NOREPLACE)
		== 0)
		return 0;
	if (errno != EINVAL && errno != ENOSYS)
		return -1;
	return renameat(writer->dirfd, writer->temporary, writer->dirfd, writer->name);
}

/* Closes the file in any case: close() reports what a network file system could not write. */
static int finish_file(struct token_writer *writer, struct err *err)
{
	unsigned char header[TOKEN_FILE_HEADER];
	token_file_header(header, writer->offset ? (int32_t)writer->tokens : 0, (int)writer->width);
	bool written = lseek(writer->fd, 0, SEEK_SET) == 0
		&& io_write_full(writer->fd, header, writer->offset) == 0 && fsync(writer->fd) == 0;
	int rc = written ? 0 : write_error(writer, "write", err);
	if (close(writer->fd) < 0 && rc == 0)
		rc = write_error(writer, "close", err);
	writer->fd = -1;
	return rc;
}

int token_writer_commit(struct token_writer *writer, struct err *err)
{
	if (writer->tokens > token_writer_most(writer))
		return err_fail(err, EXIT_DATA,
			"write: couldn't write %s: %" PRIu64 " tokens are more than its header can count",
			writer->path, writer->tokens);
	if (finish_file(writer, err) < 0)
		return -1;
	int rc = writer->replace
		? renameat(writer->dirfd, writer->temporary, writer->dirfd, writer->name)
		: rename_new(writer);
	if (rc < 0 && errno == EEXIST)
		return err_fail(err, EXIT_USAGE, "write: couldn't write %s: it exists by now",
			writer->path);
	if (rc < 0)
		return write_error(writer, "rename", err);
	writer->temporary[0] = '\0';
	return io_sync_dir(writer->dirfd, err) < 0 ? err_prefix(err, "%s", writer->path) : 0;
}

void token_writer_destroy(struct token_writer *writer)
{
	if (!writer)
		return;
	if (writer->fd >= 0)
		close(writer->fd);
	if (writer->temporary[0])
		unlinkat(writer->dirfd, writer->temporary, 0);
	if (writer->dirfd >= 0)
		close(writer->dirfd);
	free(writer->path);
	free(writer);
}
