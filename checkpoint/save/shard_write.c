/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a shard by several threads that take the file's requests one after the other. A thread
 * hashes a request under the lock, so that the hashes see the bytes in order, and writes it without
 * the lock, so that the disk always has several requests in flight. With O_DIRECT, a request that
 * is contiguous in the snapshot's memory is written from there. Otherwise it is assembled in a
 * buffer, in blocks small enough to be hashed while they are in the cache. With `spare`, until that
 * deadline, the calling thread leaves the work to others, which give way to all other threads of
 * the machine: a program that trains on all processors would otherwise stand still while they hash.
 * At the deadline ordinary threads take over; what the others have under way is little, since they
 * may get no processor for it for minutes. */
#include "config.h"
#include "checkpoint/save/shard_write.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/io.h"
#include "common/thread.h"

#define PAGE 4096u /* everywhere O_DIRECT accepts multiples of this as offsets and lengths */
/* For larger ones the kernel looks for large runs of free memory, which is slower. */
#define REQUEST_BUFFERED ((size_t)1 << 20)
/* Of a thread that gives way. */
#define REQUEST_SPARE ((size_t)2 << 20)
#define REQUEST_LEAST ((size_t)64 << 10)
#define DIRECT_LEAST ((uint64_t)64 << 10) /* bytes; smaller files go through the page cache */
#define BLOCK ((size_t)128 << 10)         /* bytes copied and hashed at once */
#define THREADS_MOST 64
#define TOLD_SECONDS 0.1 /* between calls of advance() by a thread that waits */

struct stream {
	int fd;
	struct manifest_file *file;
	const struct shard_writing *how;
	const struct shard_piece *pieces; /* beginning with the one that holds the next byte */
	size_t count;
	uint64_t skip; /* bytes of the first piece already taken */
	bool direct;
	size_t align; /* alignment that memory to write from must have */
	uint64_t end; /* of the threads' range; less than a page follows it */
	size_t request;

	pthread_mutex_t lock;
	pthread_cond_t ended;   /* signalled when a helper ends */
	int helpers;            /* number of helpers at work */
	uint64_t next;          /* offset of the first byte not taken */
	uint64_t written, told; /* bytes; told: those reported to `advance` */
	struct hasher *whole, *chunk;
	int result;
	struct err err; /* the first error, when result is -1 */
};

static int write_fault(const struct stream *stream, const char *verb, struct err *err)
{
	return err_fail(err, io_status(errno), "checkpoint: couldn't %s %s: %m", verb,
		stream->file->name);
}

/* ---- the bytes, in order ---- */

/* The next `size` bytes, if they are contiguous and aligned in memory; otherwise NULL. */
static const char *find_run(const struct stream *stream, size_t size)
{
	const char *run = (const char *)stream->pieces->data + stream->skip;
	uint64_t have = stream->pieces->size - stream->skip;
	for (size_t i = 1; have < size && i < stream->count; i++) {
		if (stream->pieces[i].size > 0 && (const char *)stream->pieces[i].data != run + have)
			return NULL;
		have += stream->pieces[i].size;
	}
	return have >= size && (uintptr_t)run % stream->align == 0 ? run : NULL;
}

/* Advances by `size` bytes, and copies them unless `to` is NULL. */
static void pass(struct stream *stream, char *to, size_t size)
{
	while (size > 0) {
		uint64_t have = stream->pieces->size - stream->skip;
		size_t n = size < have ? size : (size_t)have;
		if (to && n > 0)
			to = mempcpy(to, (const char *)stream->pieces->data + stream->skip, n);
		stream->skip += n;
		size -= n;
		if (n == have && (size > 0 || stream->count > 1)) {
			stream->pieces++;
			stream->count--;
			stream->skip = 0;
		}
	}
}

/* Hashes the `size` bytes at `offset` of the file. */
static void hash_block(struct stream *stream, uint64_t offset, const char *data, size_t size)
{
	struct manifest_file *file = stream->file;
	hasher_add(stream->whole, data, size);
	while (size > 0) {
		size_t room = MANIFEST_CHUNK - (size_t)(offset % MANIFEST_CHUNK),
			   n = size < room ? size : room;
		hasher_add(stream->chunk, data, n);
		offset += n;
		data += n;
		size -= n;
		if (n == room || offset == file->size) {
			file->chunks[(offset - 1) / MANIFEST_CHUNK] = hasher_value(stream->chunk);
			hasher_reset(stream->chunk);
		}
	}
}

/* Hashes the next `size` bytes and advances. Returns where to write them from: the snapshot's
 * memory, or `buffer`. */
static const char *take(struct stream *stream, uint64_t offset, size_t size, char *buffer)
{
	const char *run = find_run(stream, size), *from = run ? run : buffer;
	for (size_t done = 0; done < size;) {
		size_t n = size - done < BLOCK ? size - done : BLOCK;
		pass(stream, run ? NULL : buffer + done, n);
		hash_block(stream, offset + done, from + done, n);
		done += n;
	}
	return from;
}

/* ---- writing ---- */

/* Some file systems let a file be opened with O_DIRECT but then refuse to write, or require another
 * alignment. */
static bool leave_direct(const struct stream *stream)
{
	int flags = fcntl(stream->fd, F_GETFL);
	return flags >= 0 && fcntl(stream->fd, F_SETFL, flags & ~O_DIRECT) == 0;
}

static int write_at(const struct stream *stream, const char *from, size_t size, uint64_t offset)
{
	bool direct = stream->direct;
	while (size > 0) {
		ssize_t n = pwrite(stream->fd, from, size, (off_t)offset);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && direct && (errno == EINVAL || errno == EOPNOTSUPP)) {
			direct = false;
			if (!leave_direct(stream))
				return -1;
			continue;
		}
		if (n < 0)
			return -1;
		from += n;
		offset += (uint64_t)n;
		size -= (size_t)n;
	}
	return 0;
}

/* Called with the lock held; releases it while it works. */
static void tell(struct stream *stream)
{
	uint64_t more = stream->written - stream->told;
	if (!stream->how->advance || more == 0)
		return;
	stream->told = stream->written;
	pthread_mutex_unlock(&stream->lock);
	stream->how->advance(stream->how->arg, more);
	pthread_mutex_lock(&stream->lock);
}

enum worker { CALLING, HELPING, GIVING_WAY };

/* The size of the thread's next request; 0: none is left for it. */
static size_t next_request(const struct stream *stream, enum worker worker)
{
	const uint64_t left = stream->end - stream->next;
	size_t most = stream->request;
	if (stream->result < 0 || (worker == GIVING_WAY && deadline_passed(stream->how->spare)))
		return 0;
	if (worker == GIVING_WAY && most > REQUEST_SPARE)
		most = REQUEST_SPARE;
	return left < most ? (size_t)left : most;
}

/* Takes and writes requests until none is left. Only the calling thread may call advance(). */
static void work(struct stream *stream, char *buffer, enum worker worker)
{
	size_t size;
	pthread_mutex_lock(&stream->lock);
	while ((size = next_request(stream, worker)) > 0) {
		uint64_t offset = stream->next;
		stream->next += size;
		const char *from = take(stream, offset, size, buffer);
		pthread_mutex_unlock(&stream->lock);
		struct err err;
		int result = write_at(stream, from, size, offset);
		if (result < 0)
			write_fault(stream, "write", &err);
		pthread_mutex_lock(&stream->lock);
		stream->written += size;
		if (result < 0 && stream->result == 0) {
			stream->result = -1;
			stream->err = err;
		}
		if (worker == CALLING)
			tell(stream);
	}
	pthread_mutex_unlock(&stream->lock);
}

static char *make_buffer(const struct stream *stream)
{
	void *buffer;
	return posix_memalign(&buffer, PAGE, (stream->request + PAGE - 1) / PAGE * PAGE) == 0 ? buffer
																						  : NULL;
}

/* Can't be undone without root's rights. If it is refused, the thread stays an ordinary one. */
static enum worker give_way(void)
{
#ifdef SCHED_IDLE
	const struct sched_param none = { 0 };
	if (pthread_setschedparam(pthread_self(), SCHED_IDLE, &none) == 0)
		return GIVING_WAY;
#endif
	return HELPING;
}

static void *run_helper(void *arg)
{
	struct stream *stream = arg;
	char *buffer = make_buffer(stream);
	const enum worker worker = deadline_passed(stream->how->spare) ? HELPING : give_way();
	/* A thread without memory does nothing; the others do its work. */
	if (buffer)
		work(stream, buffer, worker);
	free(buffer);
	pthread_mutex_lock(&stream->lock);
	stream->helpers--;
	pthread_cond_signal(&stream->ended);
	pthread_mutex_unlock(&stream->lock);
	return NULL;
}

/* Waits until the helpers have done all the work, or `spare` is over. */
static void leave_it_to_helpers(struct stream *stream)
{
	pthread_mutex_lock(&stream->lock);
	while (stream->helpers > 0 && !deadline_passed(stream->how->spare)) {
		double left = deadline_left(stream->how->spare);
		struct timespec until =
			deadline_timespec(deadline_in(left < TOLD_SECONDS ? left : TOLD_SECONDS));
		pthread_cond_timedwait(&stream->ended, &stream->lock, &until);
		tell(stream);
	}
	pthread_mutex_unlock(&stream->lock);
}

/* Starts as many as there is work for beside the calling thread; returns their number. */
static int start_helpers(struct stream *stream, pthread_t *helpers, int threads)
{
	int started = 0;
	pthread_mutex_lock(&stream->lock);
	uint64_t requests = (stream->end - stream->next + stream->request - 1) / stream->request;
	while (started + 1 < threads && (uint64_t)started + 1 < requests
		&& thread_start(&helpers[started], run_helper, stream) == 0)
		started++;
	stream->helpers += started;
	pthread_mutex_unlock(&stream->lock);
	return started;
}

static int write_requests(struct stream *stream, char *buffer, int threads, struct err *err)
{
	pthread_t helpers[2 * THREADS_MOST];
	int started = 0;
	if (!deadline_passed(stream->how->spare)) {
		started = start_helpers(stream, helpers, threads);
		leave_it_to_helpers(stream);
	}
	started += start_helpers(stream, helpers + started, threads);
	work(stream, buffer, CALLING);
	for (int i = 0; i < started; i++)
		pthread_join(helpers[i], NULL);
	if (stream->result < 0 && err)
		*err = stream->err;
	return stream->result;
}

/* Writes what follows the last whole page through the page cache. */
static int write_rest(struct stream *stream, char *buffer, struct err *err)
{
	size_t rest = (size_t)(stream->file->size - stream->end);
	if (rest == 0)
		return 0;
	if (!leave_direct(stream))
		return write_fault(stream, "leave O_DIRECT for", err);
	if (write_at(stream, take(stream, stream->end, rest, buffer), rest, stream->end) < 0)
		return write_fault(stream, "write", err);
	stream->written += rest;
	return 0;
}

/* ---- the file ---- */

/* The memory alignment that O_DIRECT requires for this file; a page if the kernel does not tell (it
 * does from Linux 6.1). */
static size_t memory_alignment(int fd)
{
#ifdef STATX_DIOALIGN
	struct statx st;
	if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &st) == 0 && (st.stx_mask & STATX_DIOALIGN)
		&& st.stx_dio_mem_align > 0 && st.stx_dio_mem_align <= PAGE)
		return st.stx_dio_mem_align;
#else
	(void)fd;
#endif
	return PAGE;
}

static int create(struct stream *stream, int dirfd, struct err *err)
{
	const int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
	const char *name = stream->file->name;
	if (stream->direct && (stream->fd = openat(dirfd, name, flags | O_DIRECT, 0644)) < 0
		&& errno == EINVAL) {
		/* The file system has no O_DIRECT, and may notice that only after it created the file. */
		stream->direct = false;
		unlinkat(dirfd, name, 0);
	}
	if (!stream->direct)
		stream->fd = openat(dirfd, name, flags, 0644);
	if (stream->fd < 0)
		return write_fault(stream, "create", err);
	/* Reports a full disk before the first byte is written, where the file system can. */
	if (stream->file->size > 0 && fallocate(stream->fd, 0, 0, (off_t)stream->file->size) < 0
		&& errno != EOPNOTSUPP && errno != ENOSYS && errno != EINTR)
		return write_fault(stream, "reserve room for", err);
	return 0;
}

/* Makes requests large, but small enough that every thread gets some. */
static void plan(struct stream *stream, int threads)
{
	uint64_t size = stream->file->size, share = size / (uint64_t)threads / 2;
	stream->end = stream->direct ? size / PAGE * PAGE : size;
	stream->align = stream->direct ? memory_alignment(stream->fd) : 1;
	size_t most = stream->direct ? SHARD_WRITE_REQUEST : REQUEST_BUFFERED;
	stream->request = share > most ? most
		: share < REQUEST_LEAST    ? REQUEST_LEAST
								   : share / PAGE * PAGE;
	if (stream->request > size)
		stream->request = size > 0 ? (size_t)size : 1;
}

static int write_all(struct stream *stream, int threads, struct err *err)
{
	char *buffer = make_buffer(stream);
	if (!buffer)
		return err_set(err, "checkpoint: no memory for a buffer of %zu bytes", stream->request);
	int result = write_requests(stream, buffer, threads, err);
	if (result == 0)
		result = write_rest(stream, buffer, err);
	free(buffer);
	if (result < 0)
		return -1;
	if (stream->how->advance && stream->written > stream->told)
		stream->how->advance(stream->how->arg, stream->written - stream->told);
	if (fsync(stream->fd) < 0)
		return write_fault(stream, "fsync", err);
	stream->file->hash = hasher_value(stream->whole);
	return 0;
}

static int check_pieces(const struct stream *stream, struct err *err)
{
	uint64_t size = 0;
	for (size_t i = 0; i < stream->count; i++)
		size += stream->pieces[i].size;
	if (size != stream->file->size || stream->count == 0)
		return err_set(err, "checkpoint: %" PRIu64 " bytes for the %" PRIu64 " of %s", size,
			stream->file->size, stream->file->name);
	return 0;
}

static int write_stream(struct stream *stream, int dirfd, struct err *err)
{
	int threads = stream->how->threads > 0 ? stream->how->threads : SHARD_WRITE_THREADS;
	if (threads > THREADS_MOST)
		threads = THREADS_MOST;
	if (!stream->whole || !stream->chunk)
		return err_set(err, "checkpoint: no memory");
	if (check_pieces(stream, err) < 0 || create(stream, dirfd, err) < 0)
		return -1;
	plan(stream, threads);
	return write_all(stream, threads, err);
}

int shard_write(int dirfd, struct manifest_file *file, const struct shard_piece *pieces,
	size_t count, const struct shard_writing *how, struct err *err)
{
	static const struct shard_writing defaults;
	struct stream stream = { .fd = -1,
		.file = file,
		.how = how ? how : &defaults,
		.pieces = pieces,
		.count = count,
		.lock = PTHREAD_MUTEX_INITIALIZER,
		.whole = hasher_create(),
		.chunk = hasher_create() };
	deadline_condition(&stream.ended);
	stream.direct = !stream.how->buffered && file->size >= DIRECT_LEAST;
	int result = write_stream(&stream, dirfd, err);
	/* Network file systems may report a full disk at close. A close that fails has closed the
	 * descriptor, so it must not be repeated. */
	if (stream.fd >= 0 && close(stream.fd) < 0 && result == 0)
		result = write_fault(&stream, "close", err);
	pthread_cond_destroy(&stream.ended);
	hasher_destroy(stream.whole);
	hasher_destroy(stream.chunk);
	return result;
}
