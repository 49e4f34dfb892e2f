/* SPDX-License-Identifier: Apache-2.0 */
/* A shard: one file of a checkpoint, read in ranges, each chunk hashed before any of its bytes are used. */
#ifndef MUSTER_SHARD_H
#define MUSTER_SHARD_H

#include <stddef.h>
#include <stdint.h>

#include "checkpoint/manifest.h"
#include "common/err.h"

/* The bytes are not those that were written (EXIT_DATA); seen twice, the second time on a fresh open. */
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
};

/* What an errno of opening or reading means. */
enum shard_fault { SHARD_FAULT_IO /* may pass */, SHARD_FAULT_ACCESS /* won't */, SHARD_FAULT_DATA };
enum shard_fault shard_fault_of(int error_number);

/* Reads `size` bytes at `offset`. 0, -1 or SHARD_DAMAGED. */
int shard_read(struct shard *shard, uint64_t offset, void *out, size_t size, struct err *err);

/* Reads the whole file and compares every hash. */
int shard_verify(struct shard *shard, struct err *err);

void shard_close(struct shard *shard);

#endif
