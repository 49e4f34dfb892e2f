/* SPDX-License-Identifier: Apache-2.0 */
/* An event file, which TensorBoard reads: records (TFRecord,
 * tensorflow/core/lib/io/record_writer.h) of Event messages (tensorflow/core/util/event.proto,
 * version 2). */
#ifndef MUSTER_EVENT_FILE_H
#define MUSTER_EVENT_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

struct event_file;

/* Creates `name` in the folder. Its first events say that the program starts at step `first`, so
 * that a reader drops what earlier files say about this step and later ones. */
struct event_file *event_file_open(int dirfd, const char *name, uint64_t first, struct err *err);

struct event_scalar {
	const char *tag;
	float value;
};

/* Appends the values of one step as one event; tags are shorter than 64 bytes, and `count` is at
 * most 16. The event is in the file whole or not at all. */
int event_file_scalars(struct event_file *file, uint64_t step, const struct event_scalar *scalars,
	size_t count, struct err *err);

/* `file` may be NULL. */
void event_file_close(struct event_file *file);

/* CRC-32C (RFC 3720, appendix B.4), of which the records have a mask. */
uint32_t event_file_crc(const void *bytes, size_t size);

#endif
