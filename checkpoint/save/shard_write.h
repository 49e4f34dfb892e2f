/* SPDX-License-Identifier: Apache-2.0 */
/* Writing a shard: from memory to a durable file, hashed on the way. */
#ifndef MUSTER_SHARD_WRITE_H
#define MUSTER_SHARD_WRITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "checkpoint/format/manifest.h"
#include "common/clock.h"
#include "common/err.h"

/* A run of bytes of the file, in memory. */
struct shard_piece {
	const void *data;
	uint64_t size;
};

/* How to write; all zero: the defaults. */
struct shard_writing {
	int threads;           /* 0: the default; 1: only the calling thread */
	bool buffered;         /* not with O_DIRECT */
	struct deadline spare; /* until then only the processor time that nobody else wants is taken, as
							* far as there are threads for that; zero: at once all that is needed */
	void (*advance)(void *arg,
		uint64_t bytes); /* so many more are written; from the calling thread. May be NULL */
	void *arg;
};

/* Creates file->name in `dirfd`, where it must not be, with the pieces one behind the other:
 * file->size bytes. They are written, fsynced and the file is closed; each result is checked, and
 * nothing is tried twice. The hashes go into `file`. On an error the file stays as it is, to be
 * removed by the caller. */
int shard_write(int dirfd, struct manifest_file *file, const struct shard_piece *pieces,
	size_t count, const struct shard_writing *how, struct err *err);

#endif
