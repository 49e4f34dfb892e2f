/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of snapshots: a few buffers, each a memfd sealed against resizing, which the trainer
 * fills and the checkpoint service maps read-only. It lives as long as either of them holds it. */
#ifndef MUSTER_SNAPSHOT_MEMORY_H
#define MUSTER_SNAPSHOT_MEMORY_H

#include <stddef.h>

#include "common/err.h"

#define SNAPSHOT_BUFFERS 3 /* at most: two snapshots, and the state that training changes */

/* A value; zeroed means none. */
struct snapshot_memory {
	int buffers;
	size_t bytes; /* of each buffer, a multiple of the page size */
	int fd[SNAPSHOT_BUFFERS];
	void *base[SNAPSHOT_BUFFERS]; /* page-aligned */
};

/* Creates and maps `buffers` buffers of at least `bytes` bytes, writable. */
int snapshot_memory_create(struct snapshot_memory *memory, int buffers, size_t bytes,
	struct err *err);

/* Maps buffers that came from another process, read-only; takes over the descriptors, also on an
 * error. Refuses what is not a memfd, can still be resized, or is smaller than `bytes`. */
int snapshot_memory_adopt(struct snapshot_memory *memory, const int *fds, int buffers, size_t bytes,
	struct err *err);

/* Maps some of the pages of a buffer that are there already, from `from` on, so that who reads them
 * does not wait at each. Nothing is allocated. Returns where to go on; memory->bytes: there are no
 * more. */
size_t snapshot_memory_map_ahead(const struct snapshot_memory *memory, int buffer, size_t from);

void snapshot_memory_release(struct snapshot_memory *memory);

/* Bytes that this process's cgroup (v1 or v2) still allows, or the machine has available, whichever
 * is less. 0: not known. */
size_t snapshot_memory_available(void);

#endif
