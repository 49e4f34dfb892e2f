/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of snapshots: a few buffers, each a memfd sealed against resizing, which the trainer
 * fills and the checkpoint service maps read-only. A buffer lives as long as one of the two
 * processes holds it. */
#ifndef MUSTER_SNAPSHOT_MEMORY_H
#define MUSTER_SNAPSHOT_MEMORY_H

#include <stddef.h>

#include "common/err.h"

#define SNAPSHOT_BUFFERS 3 /* maximum: two snapshots, and the state that training changes */

/* A value; zeroed means no buffers. */
struct snapshot_memory {
	int buffers;
	size_t bytes; /* of each buffer, a multiple of the page size */
	int fd[SNAPSHOT_BUFFERS];
	void *base[SNAPSHOT_BUFFERS]; /* page-aligned */
};

/* Creates `buffers` buffers of at least `bytes` bytes each and maps them writable. 0, or -1 with
 * err set. */
int snapshot_memory_create(struct snapshot_memory *memory, int buffers, size_t bytes,
	struct err *err);

/* Creates further buffers of the same size, so that there are `buffers`. On an error the memory is
 * as it was. */
int snapshot_memory_extend(struct snapshot_memory *memory, int buffers, struct err *err);

/* Maps buffers of another process read-only; takes ownership of the descriptors, also on an error.
 * Refuses a descriptor that is not a memfd, can still be resized, or is smaller than `bytes`. */
int snapshot_memory_adopt(struct snapshot_memory *memory, const int *fds, int buffers, size_t bytes,
	struct err *err);

/* Maps some of a buffer's pages that already exist, starting at offset `from`, so that a later read
 * does not wait at each page. Allocates nothing. Returns the offset to continue at; memory->bytes:
 * no pages are left. */
size_t snapshot_memory_map_ahead(const struct snapshot_memory *memory, int buffer, size_t from);

void snapshot_memory_release(struct snapshot_memory *memory);

/* Bytes that this process's cgroup (v1 or v2) still allows, or that the machine has available,
 * whichever is less. 0: not known. */
size_t snapshot_memory_available(void);

#endif
