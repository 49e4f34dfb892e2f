/* SPDX-License-Identifier: Apache-2.0 */
/* Threads take the chunks of a file one behind the other, each with a descriptor of its own: while one compares and passes
 * on a chunk, the others' requests keep the disk busy. The hash of the whole file is made in turns. */
#include "config.h"
#include "checkpoint/shard.h"

#include <pthread.h>
#include <stdlib.h>

#define THREADS 4

struct scan {
	struct shard shard;        /* as it is, but not open: what each thread begins with */
	shard_sink *sink;
	void *arg;
	size_t end;                /* chunk behind the last */

	pthread_mutex_t lock;
	pthread_cond_t turn;
	size_t next;               /* chunk that nobody has taken yet */
	size_t hashed;             /* chunks in front of this one are in `whole` */
	struct hasher *whole;      /* NULL: only a range is read */
	int result;
	struct err err;            /* the first, when result is not 0 */
};

/* With the lock held, which is let go while the chunk is hashed. */
static void hash_in_turn(struct scan *scan, size_t chunk, const char *data, size_t size)
{
	while (scan->result == 0 && scan->hashed != chunk)
		pthread_cond_wait(&scan->turn, &scan->lock);
	if (scan->result != 0)
		return;
	pthread_mutex_unlock(&scan->lock);
	hasher_add(scan->whole, data, size);
	pthread_mutex_lock(&scan->lock);
	scan->hashed++;
	pthread_cond_broadcast(&scan->turn);
}

static int read_one(const struct scan *scan, struct shard *shard, size_t chunk, char *buffer, struct err *err)
{
	int result = shard_read_chunk(shard, chunk, buffer, err);
	if (result == 0 && scan->sink)
		scan->sink(scan->arg, (uint64_t)chunk * MANIFEST_CHUNK, buffer, shard_chunk_size(shard, chunk));
	return result;
}

static void work(struct scan *scan, struct shard *shard, char *buffer)
{
	pthread_mutex_lock(&scan->lock);
	while (scan->result == 0 && scan->next < scan->end) {
		struct err err;
		size_t chunk = scan->next++;
		pthread_mutex_unlock(&scan->lock);
		int result = read_one(scan, shard, chunk, buffer, &err);
		pthread_mutex_lock(&scan->lock);
		if (result == 0 && scan->whole)
			hash_in_turn(scan, chunk, buffer, shard_chunk_size(shard, chunk));
		if (result != 0 && scan->result == 0) {
			scan->result = result;
			scan->err = err;
			pthread_cond_broadcast(&scan->turn);
		}
	}
	pthread_mutex_unlock(&scan->lock);
}

static void *run_helper(void *arg)
{
	struct scan *scan = arg;
	struct shard own = scan->shard;
	char *buffer = shard_buffer(&own);
	/* Without memory or threads fewer do the work. */
	if (buffer)
		work(scan, &own, buffer);
	shard_close(&own);
	free(buffer);
	return NULL;
}

static int scan_chunks(struct scan *scan, struct shard *shard, struct err *err)
{
	pthread_t helpers[THREADS];
	size_t started = 0, chunks = scan->end - scan->next;
	char *buffer = shard_buffer(shard);
	if (!buffer)
		return err_set(err, "checkpoint: no memory for a chunk of %u bytes", MANIFEST_CHUNK);
	while (started + 1 < THREADS && started + 1 < chunks &&
		pthread_create(&helpers[started], NULL, run_helper, scan) == 0)
		started++;
	work(scan, shard, buffer);
	for (size_t i = 0; i < started; i++)
		pthread_join(helpers[i], NULL);
	free(buffer);
	if (scan->result != 0)
		*err = scan->err;
	return scan->result;
}

/* A single chunk: it may be in the cache, and is then likely to be read again. */
static int scan_one(struct scan *scan, struct shard *shard, struct err *err)
{
	int result = shard_fill_cache(shard, scan->next, err);
	size_t size = shard_chunk_size(shard, scan->next);
	if (result == 0 && scan->sink)
		scan->sink(scan->arg, (uint64_t)scan->next * MANIFEST_CHUNK, shard->cache->data, size);
	if (result == 0 && scan->whole)
		hasher_add(scan->whole, shard->cache->data, size);
	return result;
}

static int compare_whole(const struct scan *scan, struct err *err)
{
	const struct manifest_file *file = scan->shard.file;
	if (hash_equal(hasher_value(scan->whole), file->hash))
		return 0;
	err_fail(err, EXIT_DATA, "%s does not have its hash as a whole", file->name);
	return SHARD_DAMAGED;
}

int shard_scan(struct shard *shard, uint64_t offset, uint64_t size, shard_sink *sink, void *arg, struct err *err)
{
	struct err own;
	bool all = offset == 0 && size == shard->file->size;
	struct scan scan = { .shard = *shard, .sink = sink, .arg = arg, .lock = PTHREAD_MUTEX_INITIALIZER,
		.turn = PTHREAD_COND_INITIALIZER, .next = (size_t)(offset / MANIFEST_CHUNK),
		.end = (size_t)((offset + size + MANIFEST_CHUNK - 1) / MANIFEST_CHUNK) };
	err = err ? err : &own;
	scan.shard.fd = -1;
	if (all && !(scan.whole = hasher_create()))
		return err_set(err, "checkpoint: no memory");
	size_t chunks = size > 0 ? scan.end - scan.next : 0;
	/* An empty file has no chunks; opening it still checks that it is there. */
	int result = chunks == 0 ? shard_open(shard, err) : chunks == 1 ? scan_one(&scan, shard, err) :
		scan_chunks(&scan, shard, err);
	if (result == 0 && all)
		result = compare_whole(&scan, err);
	hasher_destroy(scan.whole);
	return result;
}
