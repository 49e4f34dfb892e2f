/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the chunks of a file ahead. Each thread takes the next chunk, with its own descriptor:
 * while one compares and delivers a chunk, the other threads' requests keep the disk busy. Work
 * that must see the chunks in order is done in turns. */
#include "config.h"
#include "checkpoint/load/shard.h"

#include <pthread.h>
#include <stdlib.h>

#include "common/thread.h"

#define THREADS 4

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
	int result = shard_read_chunk(shard, chunk, buffer, err);
	if (result == 0 && scan->how->sink)
		scan->how->sink(scan->how->arg, (uint64_t)chunk * MANIFEST_CHUNK, buffer,
			shard_chunk_size(shard, chunk));
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
		hasher_add(scan->whole, data, shard_chunk_size(&scan->shard, chunk));
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
	char *buffer = shard_buffer(&own);
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
	int result = size == 0 ? shard_open(shard, err) : scan_chunks(&scan, err);
	if (result == 0 && all && scan.done == scan.end)
		result = compare_whole(&scan, err);
	hasher_destroy(scan.whole);
	return result;
}
