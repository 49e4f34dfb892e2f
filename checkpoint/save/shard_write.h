/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a shard from memory to a durable file, and hashes it on the way. */
#ifndef MUSTER_SHARD_WRITE_H
#define MUSTER_SHARD_WRITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "checkpoint/format/manifest.h"
#include "common/clock.h"
#include "common/err.h"

/* While one thread hashes, the requests of the others keep the disk busy. */
#define SHARD_WRITE_THREADS 4
/* Maximum bytes; the fastest of 0.5 to 16 MiB, with 4 threads. */
#define SHARD_WRITE_REQUEST ((size_t)8 << 20)
/* The most memory that these threads take. */
#define SHARD_WRITE_BUFFERS (SHARD_WRITE_THREADS * SHARD_WRITE_REQUEST)

/* Consecutive bytes of the file, in memory. */
struct shard_piece {
	const void *data;
	uint64_t size;
};

/* How to write; all zero: the defaults. */
struct shard_writing {
	int threads;   /* 0: SHARD_WRITE_THREADS; 1: only the calling thread */
	bool buffered; /* don't use O_DIRECT */
	/* Until then use only processor time that no other program wants, as far as threads can be
	 * started for that; zero: use all that is needed at once. */
	struct deadline spare;
	void (*advance)(void *arg,
		uint64_t bytes); /* this many more are written; on the calling thread. May be NULL */
	void *arg;
};

/* Creates file->name in `dirfd`, where it must not exist, from the pieces in order: file->size
 * bytes. Writes, fsyncs and closes it; each result is checked, and nothing is tried twice. The
 * hashes go into `file`. On an error the file stays as it is, and the caller removes it. */
int shard_write(int dirfd, struct manifest_file *file, const struct shard_piece *pieces,
	size_t count, const struct shard_writing *how, struct err *err);

#endif
