/* SPDX-License-Identifier: Apache-2.0 */
/* Files of a checkpoint. Damage and I/O errors are told apart here: bytes that do not hash are damage, bytes that can't
 * be had are not. */
#include "config.h"
#include "checkpoint/shard.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/io.h"

#define RETRY_SECONDS 0.5 /* between two attempts after an I/O error */

enum shard_fault shard_fault_of(int error_number)
{
	switch (error_number) {
	case ENOENT: case ENOTDIR: case EISDIR: case ELOOP:
		return SHARD_FAULT_DATA;
	case EACCES: case EPERM:
		return SHARD_FAULT_ACCESS;
	default:
		return SHARD_FAULT_IO;
	}
}

void shard_close(struct shard *shard)
{
	if (shard->fd >= 0)
		close(shard->fd);
	shard->fd = -1;
}

static int damaged(struct err *err, const struct shard *shard, const char *how)
{
	err_fail(err, EXIT_DATA, "%s %s", shard->file->name, how);
	return SHARD_DAMAGED;
}

static int read_fault(const struct shard *shard, const char *verb, struct err *err)
{
	static const enum exit_status status[] = {
		[SHARD_FAULT_IO] = EXIT_LOST, [SHARD_FAULT_ACCESS] = EXIT_FAULT, [SHARD_FAULT_DATA] = EXIT_DATA,
	};
	enum shard_fault fault = shard_fault_of(errno);
	err_fail(err, status[fault], "checkpoint: couldn't %s %s: %m", verb, shard->file->name);
	return fault == SHARD_FAULT_DATA ? SHARD_DAMAGED : -1;
}

static int open_shard(struct shard *shard, struct err *err)
{
	struct stat st;
	if (shard->fd >= 0)
		return 0;
	shard->fd = openat(shard->dirfd, shard->file->name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
	if (shard->fd < 0 || fstat(shard->fd, &st) < 0)
		return read_fault(shard, "open", err);
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != shard->file->size)
		return damaged(err, shard, "does not have its size");
	return 0;
}

static int try_chunk(struct shard *shard, size_t chunk, void *out, size_t size, struct err *err)
{
	int result = open_shard(shard, err);
	if (result < 0)
		return result;
	off_t offset = (off_t)chunk * MANIFEST_CHUNK;
	ssize_t n = lseek(shard->fd, offset, SEEK_SET) < 0 ? -1 : io_read_full(shard->fd, out, size);
	if (n < 0)
		return read_fault(shard, "read", err);
	if ((size_t)n != size)
		return damaged(err, shard, "ends too early");
	if (!hash_equal(hash_bytes(out, size), shard->file->chunks[chunk]))
		return damaged(err, shard, "does not have its hash");
	return 0;
}

/* The next attempt must come from the storage, not from this machine's memory of it. */
static void forget(struct shard *shard)
{
	if (shard->fd >= 0)
		posix_fadvise(shard->fd, 0, 0, POSIX_FADV_DONTNEED);
	shard_close(shard);
}

static size_t chunk_size(const struct shard *shard, size_t chunk)
{
	uint64_t left = shard->file->size - (uint64_t)chunk * MANIFEST_CHUNK;
	return left < MANIFEST_CHUNK ? (size_t)left : MANIFEST_CHUNK;
}

static int read_chunk(struct shard *shard, size_t chunk, void *out, struct err *err)
{
	struct deadline deadline = deadline_in(shard->io_timeout);
	int mismatches = 0;
	for (;;) {
		int result = try_chunk(shard, chunk, out, chunk_size(shard, chunk), err);
		if (result == 0)
			return 0;
		forget(shard);
		if (result == SHARD_DAMAGED && ++mismatches == 2)
			return result;
		if (result == -1 && (!err || err->status != EXIT_LOST || !deadline_sleep(deadline, RETRY_SECONDS)))
			return result;
	}
}

static int fill_cache(struct shard *shard, size_t chunk, struct err *err)
{
	struct shard_cache *cache = shard->cache;
	if (cache->shard == shard && cache->chunk == chunk)
		return 0;
	cache->shard = NULL;
	if (cache->room < chunk_size(shard, chunk)) {
		free(cache->data);
		cache->room = chunk_size(shard, chunk);
		cache->data = malloc(cache->room);
	}
	if (!cache->data) {
		cache->room = 0;
		return err_set(err, "checkpoint: no memory for a chunk of %u bytes", MANIFEST_CHUNK);
	}
	int result = read_chunk(shard, chunk, cache->data, err);
	if (result == 0) {
		cache->shard = shard;
		cache->chunk = chunk;
	}
	return result;
}

int shard_read(struct shard *shard, uint64_t offset, void *out, size_t size, struct err *err)
{
	struct err own;
	char *to = out;
	err = err ? err : &own;
	if (offset > shard->file->size || size > shard->file->size - offset)
		return err_set(err, "checkpoint: a read past the end of %s", shard->file->name);
	while (size > 0) {
		size_t chunk = (size_t)(offset / MANIFEST_CHUNK), skip = (size_t)(offset % MANIFEST_CHUNK);
		size_t have = chunk_size(shard, chunk) - skip;
		size_t n = size < have ? size : have;
		bool whole = skip == 0 && n == chunk_size(shard, chunk);
		int result = whole ? read_chunk(shard, chunk, to, err) : fill_cache(shard, chunk, err);
		if (result < 0)
			return result;
		if (!whole)
			memcpy(to, shard->cache->data + skip, n);
		to += n;
		offset += n;
		size -= n;
	}
	return 0;
}

int shard_verify(struct shard *shard, struct err *err)
{
	struct err own;
	err = err ? err : &own;
	struct hasher *whole = hasher_create();
	int result = whole ? 0 : err_set(err, "checkpoint: no memory");
	/* An empty file has no chunks; opening it still checks that it is there. */
	if (result == 0 && shard->file->chunk_count == 0)
		result = open_shard(shard, err);
	for (size_t chunk = 0; result == 0 && chunk < shard->file->chunk_count; chunk++) {
		result = fill_cache(shard, chunk, err);
		if (result == 0)
			hasher_add(whole, shard->cache->data, chunk_size(shard, chunk));
	}
	if (result == 0 && !hash_equal(hasher_value(whole), shard->file->hash))
		result = damaged(err, shard, "does not have its hash as a whole");
	hasher_destroy(whole);
	return result;
}
