/* SPDX-License-Identifier: Apache-2.0 */
/* A shard: one file of a checkpoint, read in ranges or whole, each chunk hashed before any of its
 * bytes are used. */
#ifndef MUSTER_SHARD_H
#define MUSTER_SHARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "checkpoint/format/manifest.h"
#include "common/err.h"

/* The bytes are not those that were written (EXIT_DATA); seen twice, the second time on a fresh
 * open. */
#define SHARD_DAMAGED (-2)

/* One chunk in memory, shared by the shards of a checkpoint. */
struct shard_cache {
	const struct shard *shard;
	size_t chunk;
	char *data;
	size_t room;
};

struct shard {
	int dirfd;                        /* the checkpoint's folder; borrowed */
	const struct manifest_file *file; /* borrowed */
	struct shard_cache *cache;        /* borrowed */
	double io_timeout;                /* how long an I/O error is retried, by opening anew */
	int fd;                           /* -1: to be opened at the first read */
	bool buffered;                    /* O_DIRECT was refused */
};

/* What an errno of opening or reading means. */
enum shard_fault {
	SHARD_FAULT_IO /* may pass */,
	SHARD_FAULT_ACCESS /* won't */,
	SHARD_FAULT_DATA
};
enum shard_fault shard_fault_of(int error_number);

/* Reads `size` bytes at `offset`. 0, -1 or SHARD_DAMAGED; also below. */
int shard_read(struct shard *shard, uint64_t offset, void *out, size_t size, struct err *err);

/* What is done with the chunks of a scan. Both functions may be NULL. */
struct shard_scanning {
	/* Is given a chunk that has been compared: `size` bytes that lie at `offset` of the file.
	 * Called from several threads at once, for different chunks. */
	void (*sink)(void *arg, uint64_t offset, const char *data, size_t size);
	/* Is told what came of each chunk (0, -1 or SHARD_DAMAGED; not 0: err says why), in the order
	 * of the file and one at a time, from any thread. Returns whether to go on. NULL: a scan ends
	 * at the first chunk that can't be had. */
	bool (*told)(void *arg, size_t chunk, int result, const struct err *err);
	void *arg;
};

/* Reads the chunks that hold [offset, offset + size), ahead and on several threads where there are
 * several. If that is the whole file and no chunk was missed, its hash is compared too. The result
 * is that of the first chunk in the file that can't be had. I/O errors are waited for until one has
 * not passed; then the storage is asked once for each chunk. `how` may be NULL. */
int shard_scan(struct shard *shard, uint64_t offset, uint64_t size,
	const struct shard_scanning *how, struct err *err);

/* Reads one chunk into memory that begins at a page and has room for whole pages. */
int shard_read_chunk(struct shard *shard, size_t chunk, char *out, struct err *err);

/* Such memory for a chunk of this shard; freed by free(). NULL when there is none. */
char *shard_buffer(const struct shard *shard);

/* Bytes of a chunk. */
size_t shard_chunk_size(const struct shard *shard, size_t chunk);

/* Reads the chunk into the shard's cache, unless it is there. */
int shard_fill_cache(struct shard *shard, size_t chunk, struct err *err);

/* Opens it, unless it is open: a regular file of its size. Only this once: no retries. */
int shard_open(struct shard *shard, struct err *err);
void shard_close(struct shard *shard);

#endif
