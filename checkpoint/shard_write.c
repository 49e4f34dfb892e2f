/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a file piece by piece. */
#include "config.h"
#include "checkpoint/shard_write.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/io.h"

struct writer {
	int fd;
	struct manifest_file *file;
	const struct shard_writing *how;
	uint64_t written;
	struct hasher *whole, *chunk;
};

static int write_fault(const struct writer *writer, const char *verb, struct err *err)
{
	return err_fail(err, io_status(errno), "checkpoint: couldn't %s %s: %m", verb, writer->file->name);
}

static int create(struct writer *writer, int dirfd, struct err *err)
{
	const char *name = writer->file->name;
	writer->fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
	if (writer->fd < 0)
		return write_fault(writer, "create", err);
	/* Tells of a full disk before the first byte is written, where the file system can. */
	if (writer->file->size > 0 && fallocate(writer->fd, 0, 0, (off_t)writer->file->size) < 0 &&
		errno != EOPNOTSUPP && errno != ENOSYS && errno != EINTR)
		return write_fault(writer, "reserve room for", err);
	return 0;
}

static int write_piece(struct writer *writer, const struct shard_piece *piece, struct err *err)
{
	const char *at = piece->data;
	uint64_t size = piece->size;
	if (size > writer->file->size - writer->written)
		return err_set(err, "checkpoint: more than %" PRIu64 " bytes for %s", writer->file->size, writer->file->name);
	while (size > 0) {
		size_t room = MANIFEST_CHUNK - (size_t)(writer->written % MANIFEST_CHUNK);
		size_t n = size < room ? (size_t)size : room;
		if (io_write_full(writer->fd, at, n) < 0)
			return write_fault(writer, "write", err);
		hasher_add(writer->whole, at, n);
		hasher_add(writer->chunk, at, n);
		writer->written += n;
		at += n;
		size -= n;
		if (n == room || writer->written == writer->file->size) {
			writer->file->chunks[(writer->written - 1) / MANIFEST_CHUNK] = hasher_value(writer->chunk);
			hasher_reset(writer->chunk);
		}
		if (writer->how->advance)
			writer->how->advance(writer->how->arg, n);
	}
	return 0;
}

static int write_pieces(struct writer *writer, const struct shard_piece *pieces, size_t count, struct err *err)
{
	for (size_t i = 0; i < count; i++)
		if (write_piece(writer, &pieces[i], err) < 0)
			return -1;
	if (writer->written != writer->file->size)
		return err_set(err, "checkpoint: %s got %" PRIu64 " of its %" PRIu64 " bytes", writer->file->name, writer->written,
			writer->file->size);
	if (fsync(writer->fd) < 0)
		return write_fault(writer, "fsync", err);
	writer->file->hash = hasher_value(writer->whole);
	return 0;
}

int shard_write(int dirfd, struct manifest_file *file, const struct shard_piece *pieces, size_t count,
	const struct shard_writing *how, struct err *err)
{
	static const struct shard_writing defaults;
	struct writer writer = { .fd = -1, .file = file, .how = how ? how : &defaults, .whole = hasher_create(),
		.chunk = hasher_create() };
	int result = writer.whole && writer.chunk ? 0 : err_set(err, "checkpoint: no memory");
	if (result == 0)
		result = create(&writer, dirfd, err);
	if (result == 0)
		result = write_pieces(&writer, pieces, count, err);
	/* Network file systems report a full disk at close too. A failed close has closed: never again. */
	if (writer.fd >= 0 && close(writer.fd) < 0 && result == 0)
		result = write_fault(&writer, "close", err);
	hasher_destroy(writer.whole);
	hasher_destroy(writer.chunk);
	return result;
}
