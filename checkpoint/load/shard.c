/* SPDX-License-Identifier: Apache-2.0 */
/* Reads files of a checkpoint, and tells damage from I/O errors: bytes with a wrong hash are
 * damage, bytes that can't be read are not. */
#include "config.h"
#include "checkpoint/load/shard.h"

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
#include "common/pages.h"

#define RETRY_SECONDS 0.5                /* between two tries after an I/O error */
#define DIRECT_LEAST ((uint64_t)1 << 20) /* bytes; smaller files are read without O_DIRECT */
#define AHEAD_LEAST (2 * (size_t)MANIFEST_CHUNK) /* bytes; longer reads are worth threads */

enum shard_fault shard_fault_of(int error_number)
{
	switch (error_number) {
	case ENOENT:
	case ENOTDIR:
	case EISDIR:
	case ELOOP: return SHARD_FAULT_DATA;
	case EACCES:
	case EPERM: return SHARD_FAULT_ACCESS;
	default: return SHARD_FAULT_IO;
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
		[SHARD_FAULT_IO] = EXIT_LOST,
		[SHARD_FAULT_ACCESS] = EXIT_FAULT,
		[SHARD_FAULT_DATA] = EXIT_DATA,
	};
	enum shard_fault fault = shard_fault_of(errno);
	err_fail(err, status[fault], "checkpoint: couldn't %s %s: %m", verb, shard->file->name);
	return fault == SHARD_FAULT_DATA ? SHARD_DAMAGED : -1;
}

/* Small files are read through the page cache, which may have them already. */
static bool is_direct(const struct shard *shard)
{
	return !shard->buffered && shard->file->size >= DIRECT_LEAST;
}

int shard_open(struct shard *shard, struct err *err)
{
	const int flags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
	struct stat st;
	if (shard->fd >= 0)
		return 0;
	shard->fd =
		openat(shard->dirfd, shard->file->name, is_direct(shard) ? flags | O_DIRECT : flags);
	if (shard->fd < 0 && errno == EINVAL && is_direct(shard)) {
		shard->buffered = true;
		shard->fd = openat(shard->dirfd, shard->file->name, flags);
	}
	if (shard->fd < 0 || fstat(shard->fd, &st) < 0)
		return read_fault(shard, "open", err);
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != shard->file->size)
		return damaged(err, shard, "does not have its size");
	return 0;
}

size_t shard_chunk_size(const struct shard *shard, size_t chunk)
{
	uint64_t left = shard->file->size - (uint64_t)chunk * MANIFEST_CHUNK;
	return left < MANIFEST_CHUNK ? (size_t)left : MANIFEST_CHUNK;
}

char *shard_buffer(const struct shard *shard)
{
	return pages_alloc(shard->file->chunk_count > 0 ? shard_chunk_size(shard, 0) : 1);
}

static int try_chunk(struct shard *shard, size_t chunk, char *out, struct err *err)
{
	size_t size = shard_chunk_size(shard, chunk);
	int result = shard_open(shard, err);
	if (result < 0)
		return result;
	/* Read whole pages, as O_DIRECT requires; the file may end within the last page. */
	ssize_t n =
		io_read_within(shard->fd, out, size, pages_round(size), (off_t)chunk * MANIFEST_CHUNK);
	if (n < 0 && errno == EINVAL && is_direct(shard)) {
		/* The file system accepted O_DIRECT at the open, but not for reading. */
		shard->buffered = true;
		shard_close(shard);
		return try_chunk(shard, chunk, out, err);
	}
	if (n < 0)
		return read_fault(shard, "read", err);
	if ((size_t)n < size)
		return damaged(err, shard, "ends too early");
	if (!hash_equal(hash_bytes(out, size), shard->file->chunks[chunk]))
		return damaged(err, shard, "does not have its hash");
	return 0;
}

/* The next try must read from the storage, not from this machine's page cache. */
static void forget(struct shard *shard)
{
	if (shard->fd >= 0)
		posix_fadvise(shard->fd, 0, 0, POSIX_FADV_DONTNEED);
	shard_close(shard);
}

int shard_read_chunk(struct shard *shard, size_t chunk, char *out, struct err *err)
{
	struct deadline deadline = deadline_in(shard->io_timeout);
	int mismatches = 0;
	for (;;) {
		int result = try_chunk(shard, chunk, out, err);
		if (result == 0)
			return 0;
		forget(shard);
		if (result == SHARD_DAMAGED && ++mismatches == 2)
			return result;
		if (result == -1
			&& (!err || err->status != EXIT_LOST || !deadline_sleep(deadline, RETRY_SECONDS)))
			return result;
	}
}

int shard_fill_cache(struct shard *shard, size_t chunk, struct err *err)
{
	struct shard_cache *cache = shard->cache;
	if (cache->shard == shard && cache->chunk == chunk)
		return 0;
	cache->shard = NULL;
	if (cache->room < shard_chunk_size(shard, chunk)) {
		free(cache->data);
		cache->data = shard_buffer(shard);
		cache->room = cache->data ? shard_chunk_size(shard, 0) : 0;
	}
	if (!cache->data)
		return err_set(err, "checkpoint: no memory for a chunk of %u bytes", MANIFEST_CHUNK);
	int result = shard_read_chunk(shard, chunk, cache->data, err);
	if (result == 0) {
		cache->shard = shard;
		cache->chunk = chunk;
	}
	return result;
}

/* A requested range and where it goes. */
struct range {
	uint64_t offset, size;
	char *out;
};

static void copy_range(void *arg, uint64_t offset, const char *data, size_t size)
{
	const struct range *range = arg;
	uint64_t begin = offset > range->offset ? offset : range->offset;
	uint64_t end = offset + size, range_end = range->offset + range->size;
	end = end < range_end ? end : range_end;
	if (begin < end)
		memcpy(range->out + (begin - range->offset), data + (begin - offset), end - begin);
}

int shard_read(struct shard *shard, uint64_t offset, void *out, size_t size, struct err *err)
{
	struct err own;
	struct range range = { offset, size, out };
	err = err ? err : &own;
	if (offset > shard->file->size || size > shard->file->size - offset)
		return err_set(err, "checkpoint: a read past the end of %s", shard->file->name);
	if (size > AHEAD_LEAST)
		return shard_scan(shard, offset, size,
			&(struct shard_scanning) { .sink = copy_range, .arg = &range }, err);
	for (uint64_t at = offset; at < offset + size;
		 at = (at / MANIFEST_CHUNK + 1) * MANIFEST_CHUNK) {
		size_t chunk = (size_t)(at / MANIFEST_CHUNK);
		int result = shard_fill_cache(shard, chunk, err);
		if (result < 0)
			return result;
		copy_range(&range, (uint64_t)chunk * MANIFEST_CHUNK, shard->cache->data,
			shard_chunk_size(shard, chunk));
	}
	return 0;
}
