/* SPDX-License-Identifier: Apache-2.0 */
/* Reads files of a checkpoint, and tells damage from I/O errors: bytes with a wrong hash are
 * damage, bytes that can't be read are not. A scan reads the chunks ahead: each thread takes the
 * next chunk, with its own descriptor, and while one compares and copies a chunk, the other
 * threads' requests keep the disk busy. Work that must see the chunks in order is done in turns. */
#include "config.h"
#include "checkpoint/load/shard.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/io.h"
#include "common/pages.h"
#include "common/thread.h"

#define RETRY_SECONDS 0.5                /* between two tries after an I/O error */
#define DIRECT_LEAST ((uint64_t)1 << 20) /* bytes; smaller files are read without O_DIRECT */
#define THREADS 4                        /* of a scan */
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

/* Opens the file, unless it is open; it must be a regular file of the manifest's size. Tries only
 * once. */
static int open_file(struct shard *shard, struct err *err)
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

/* Only the last chunk may be shorter than MANIFEST_CHUNK. */
static size_t chunk_size(const struct shard *shard, size_t chunk)
{
	uint64_t left = shard->file->size - (uint64_t)chunk * MANIFEST_CHUNK;
	return left < MANIFEST_CHUNK ? (size_t)left : MANIFEST_CHUNK;
}

/* Page-aligned memory with room for the whole pages of a chunk. */
static char *make_buffer(const struct shard *shard)
{
	return pages_alloc(shard->file->chunk_count > 0 ? chunk_size(shard, 0) : 1);
}

static int try_chunk(struct shard *shard, size_t chunk, char *out, struct err *err)
{
	size_t size = chunk_size(shard, chunk);
	int result = open_file(shard, err);
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

static int read_chunk(struct shard *shard, size_t chunk, char *out, struct err *err)
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

/* Copies the requested bytes of the chunk at `offset`. Ranges may overlap, when some bytes are
 * requested twice, so all that begin before the chunk's end are looked at. */
static void copy_ranges(const struct shard_range *ranges, size_t count, uint64_t offset,
	const char *data, size_t size)
{
	for (size_t i = 0; i < count && ranges[i].begin < offset + size; i++) {
		const struct shard_range *range = &ranges[i];
		uint64_t begin = offset > range->begin ? offset : range->begin;
		uint64_t end = offset + size < range->end ? offset + size : range->end;
		if (begin < end)
			memcpy(range->out + (begin - range->begin), data + (begin - offset), end - begin);
	}
}

/* ---- a whole file, or a range of it ---- */

struct scan {
	struct shard shard; /* not open; each thread begins with a copy */
	const struct shard_scanning *how;
	size_t end; /* index after the last chunk */

	pthread_mutex_t lock;
	pthread_cond_t turn;
	size_t next; /* the first chunk that no thread has taken */
	size_t done; /* chunks before this one have had their turn */
	bool stopped;
	double io_timeout;

	/* Used by the thread whose turn it is. */
	struct hasher *whole; /* NULL: only a range is read */
	int result;
	struct err err; /* the first error, when result is not 0 */
};

static int read_one(const struct scan *scan, struct shard *shard, size_t chunk, char *buffer,
	struct err *err)
{
	int result = read_chunk(shard, chunk, buffer, err);
	if (result == 0)
		copy_ranges(scan->how->ranges, scan->how->count, (uint64_t)chunk * MANIFEST_CHUNK, buffer,
			chunk_size(shard, chunk));
	return result;
}

/* Processes the result of a chunk, in the order of the chunks. Returns whether to go on. */
static bool take_turn(struct scan *scan, size_t chunk, int result, const char *data,
	const struct err *err)
{
	const struct shard_scanning *how = scan->how;
	if (result != 0 && scan->result == 0) {
		scan->result = result;
		scan->err = *err;
	}
	if (scan->result == 0 && scan->whole)
		hasher_add(scan->whole, data, chunk_size(&scan->shard, chunk));
	return how->told ? how->told(how->arg, chunk, result, err) : result == 0;
}

static void work(struct scan *scan, struct shard *shard, char *buffer)
{
	pthread_mutex_lock(&scan->lock);
	while (!scan->stopped && scan->next < scan->end) {
		struct err err;
		size_t chunk = scan->next++;
		shard->io_timeout = scan->io_timeout;
		pthread_mutex_unlock(&scan->lock);
		int result = read_one(scan, shard, chunk, buffer, &err);
		pthread_mutex_lock(&scan->lock);
		while (!scan->stopped && scan->done != chunk)
			pthread_cond_wait(&scan->turn, &scan->lock);
		if (scan->stopped)
			break;
		pthread_mutex_unlock(&scan->lock);
		bool on = take_turn(scan, chunk, result, buffer, &err);
		pthread_mutex_lock(&scan->lock);
		scan->done++;
		scan->stopped = !on;
		if (result == -1)
			scan->io_timeout = 0;
		pthread_cond_broadcast(&scan->turn);
	}
	pthread_mutex_unlock(&scan->lock);
}

static void *run_thread(void *arg)
{
	struct scan *scan = arg;
	struct shard own = scan->shard;
	char *buffer = make_buffer(&own);
	/* A thread without memory does nothing; the others do its work. */
	if (buffer)
		work(scan, &own, buffer);
	shard_close(&own);
	free(buffer);
	return NULL;
}

static int scan_chunks(struct scan *scan, struct err *err)
{
	pthread_t helpers[THREADS];
	size_t started = 0, chunks = scan->end - scan->next;
	while (started + 1 < THREADS && started + 1 < chunks
		&& thread_start(&helpers[started], run_thread, scan) == 0)
		started++;
	run_thread(scan);
	for (size_t i = 0; i < started; i++)
		pthread_join(helpers[i], NULL);
	if (!scan->stopped && scan->done < scan->end)
		return err_set(err, "checkpoint: no memory for a chunk of %u bytes", MANIFEST_CHUNK);
	if (scan->result != 0)
		*err = scan->err;
	return scan->result;
}

static int compare_whole(const struct scan *scan, struct err *err)
{
	const struct manifest_file *file = scan->shard.file;
	if (hash_equal(hasher_value(scan->whole), file->hash))
		return 0;
	err_fail(err, EXIT_DATA, "%s does not have its hash as a whole", file->name);
	return SHARD_DAMAGED;
}

int shard_scan(struct shard *shard, uint64_t offset, uint64_t size,
	const struct shard_scanning *how, struct err *err)
{
	static const struct shard_scanning nothing;
	struct err own;
	bool all = offset == 0 && size == shard->file->size;
	size_t first = (size_t)(offset / MANIFEST_CHUNK);
	struct scan scan = { .shard = *shard,
		.how = how ? how : &nothing,
		.lock = PTHREAD_MUTEX_INITIALIZER,
		.turn = PTHREAD_COND_INITIALIZER,
		.next = first,
		.done = first,
		.io_timeout = shard->io_timeout,
		.end = (size_t)((offset + size + MANIFEST_CHUNK - 1) / MANIFEST_CHUNK) };
	err = err ? err : &own;
	scan.shard.fd = -1;
	if (all && !(scan.whole = hasher_create()))
		return err_set(err, "checkpoint: no memory");
	/* An empty file has no chunks; opening it checks that it exists. */
	int result = size == 0 ? open_file(shard, err) : scan_chunks(&scan, err);
	if (result == 0 && all && scan.done == scan.end)
		result = compare_whole(&scan, err);
	hasher_destroy(scan.whole);
	return result;
}

/* ---- a few bytes ---- */

static int fill_cache(struct shard *shard, size_t chunk, struct err *err)
{
	struct shard_cache *cache = shard->cache;
	if (cache->shard == shard && cache->chunk == chunk)
		return 0;
	cache->shard = NULL;
	if (cache->room < chunk_size(shard, chunk)) {
		free(cache->data);
		cache->data = make_buffer(shard);
		cache->room = cache->data ? chunk_size(shard, 0) : 0;
	}
	if (!cache->data)
		return err_set(err, "checkpoint: no memory for a chunk of %u bytes", MANIFEST_CHUNK);
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
	const struct shard_range range = { offset, offset + size, out };
	err = err ? err : &own;
	if (offset > shard->file->size || size > shard->file->size - offset)
		return err_set(err, "checkpoint: a read past the end of %s", shard->file->name);
	if (size > AHEAD_LEAST)
		return shard_scan(shard, offset, size,
			&(struct shard_scanning) { .ranges = &range, .count = 1 }, err);
	for (uint64_t at = offset; at < offset + size;
		 at = (at / MANIFEST_CHUNK + 1) * MANIFEST_CHUNK) {
		size_t chunk = (size_t)(at / MANIFEST_CHUNK);
		int result = fill_cache(shard, chunk, err);
		if (result < 0)
			return result;
		copy_ranges(&range, 1, (uint64_t)chunk * MANIFEST_CHUNK, shard->cache->data,
			chunk_size(shard, chunk));
	}
	return 0;
}
