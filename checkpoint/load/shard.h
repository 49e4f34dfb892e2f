/* SPDX-License-Identifier: Apache-2.0 */
/* A shard: one file of a checkpoint. It is read whole or in ranges, and each chunk is hashed before
 * any of its bytes are used. */
#ifndef MUSTER_SHARD_H
#define MUSTER_SHARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "checkpoint/format/manifest.h"
#include "common/err.h"

/* The bytes are not those that were written (EXIT_DATA). Found twice, the second time after opening
 * the file anew. */
#define SHARD_DAMAGED (-2)

/* One chunk in memory, shared by all shards of a checkpoint. */
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
	double io_timeout; /* seconds for which an I/O error is retried, by opening anew */
	int fd;            /* -1: opened at the first read */
	bool buffered;     /* O_DIRECT was refused: read through the page cache */
};

/* What an errno of opening or reading means. */
enum shard_fault {
	SHARD_FAULT_IO /* may go away */,
	SHARD_FAULT_ACCESS /* won't go away */,
	SHARD_FAULT_DATA
};
enum shard_fault shard_fault_of(int error_number);

/* Reads `size` bytes at `offset`. Returns 0, -1 or SHARD_DAMAGED, as do the functions below. */
int shard_read(struct shard *shard, uint64_t offset, void *out, size_t size, struct err *err);

/* Bytes [begin, end) of a file, and where they go. */
struct shard_range {
	uint64_t begin, end;
	char *out;
};

/* What a scan does with the chunks. */
struct shard_scanning {
	/* What is copied out of the chunks that have their hash; in the order of `begin`. */
	const struct shard_range *ranges;
	size_t count;
	/* Receives the result of each chunk (0, -1 or SHARD_DAMAGED; if not 0, err says why). Called in
	 * the order of the file, one call at a time, on any thread. Returns whether to go on. NULL: the
	 * scan ends at the first chunk whose result is not 0. */
	bool (*told)(void *arg, size_t chunk, int result, const struct err *err);
	void *arg;
};

/* Reads the chunks that hold [offset, offset + size), ahead, and on several threads when there are
 * several chunks. If that is the whole file and no chunk failed, the file's hash is compared too.
 * Returns the result of the first chunk of the file that failed. I/O errors are retried until one
 * has not gone away; after that each chunk is tried only once. `how` may be NULL. */
int shard_scan(struct shard *shard, uint64_t offset, uint64_t size,
	const struct shard_scanning *how, struct err *err);

void shard_close(struct shard *shard);

#endif
