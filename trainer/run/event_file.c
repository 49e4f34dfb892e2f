/* SPDX-License-Identifier: Apache-2.0 */
/* Encodes the few messages that scalars need. Of protobuf
 * (https://protobuf.dev/programming-guides/encoding) these are varints, fixed numbers and bytes. */
#include "config.h"

#include "trainer/run/event_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/io.h"

#define EVENT_SIZE 2048 /* bytes of the largest event */

/* The first byte of a field: its number and its kind. */
enum kind { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };
#define FIELD(number, kind) ((unsigned char)((number) << 3 | (kind)))

#define EVENT_WALL_TIME FIELD(1, FIXED64)
#define EVENT_STEP FIELD(2, VARINT)
#define EVENT_FILE_VERSION FIELD(3, BYTES)
#define EVENT_SUMMARY FIELD(5, BYTES)
#define EVENT_SESSION_LOG FIELD(7, BYTES)
#define SESSION_LOG_STATUS FIELD(1, VARINT)
#define SESSION_START 1
#define SUMMARY_VALUE FIELD(1, BYTES)
#define VALUE_TAG FIELD(1, BYTES)
#define VALUE_SIMPLE FIELD(2, FIXED32)

struct event_file {
	int fd;
	char name[200];
};

struct message {
	unsigned char bytes[EVENT_SIZE];
	size_t size;
};

uint32_t event_file_crc(const void *bytes, size_t size)
{
	const unsigned char *byte = bytes;
	uint32_t crc = 0xffffffff;
	for (size_t i = 0; i < size; i++) {
		crc ^= byte[i];
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
	}
	return ~crc;
}

static void add(struct message *message, const void *bytes, size_t size)
{
	memcpy(message->bytes + message->size, bytes, size);
	message->size += size;
}

static void add_byte(struct message *message, unsigned char byte)
{
	add(message, &byte, 1);
}

static void add_varint(struct message *message, uint64_t value)
{
	for (; value >= 0x80; value >>= 7)
		add_byte(message, (unsigned char)(value | 0x80));
	add_byte(message, (unsigned char)value);
}

static void add_bytes(struct message *message, unsigned char field, const void *bytes, size_t size)
{
	add_byte(message, field);
	add_varint(message, size);
	add(message, bytes, size);
}

static void add_scalar(struct message *summary, const struct event_scalar *scalar)
{
	struct message value = { .size = 0 };
	add_bytes(&value, VALUE_TAG, scalar->tag, strlen(scalar->tag));
	add_byte(&value, VALUE_SIMPLE);
	add(&value, &scalar->value, sizeof scalar->value);
	add_bytes(summary, SUMMARY_VALUE, value.bytes, value.size);
}

static void begin(struct message *event, uint64_t step)
{
	const double now = clock_wall();
	event->size = 0;
	add_byte(event, EVENT_WALL_TIME);
	add(event, &now, sizeof now);
	add_byte(event, EVENT_STEP);
	add_varint(event, step);
}

static uint32_t masked(const void *bytes, size_t size)
{
	const uint32_t crc = event_file_crc(bytes, size);
	return (crc >> 15 | crc << 17) + 0xa282ead8;
}

/* Appends a record. A reader gives up at a torn one: what could not be written whole is taken
 * back. */
static int append(struct event_file *file, const struct message *event, struct err *err)
{
	struct message record = { .size = 0 };
	const uint64_t length = event->size;
	const uint32_t length_crc = masked(&length, sizeof length);
	const uint32_t crc = masked(event->bytes, event->size);
	const off_t end = lseek(file->fd, 0, SEEK_END);
	add(&record, &length, sizeof length);
	add(&record, &length_crc, sizeof length_crc);
	add(&record, event->bytes, event->size);
	add(&record, &crc, sizeof crc);
	if (end >= 0 && io_write_full(file->fd, record.bytes, record.size) == 0)
		return 0;
	const int why = errno;
	if (end >= 0 && ftruncate(file->fd, end) < 0)
		return err_fail(err, io_status(errno), "tensorboard: couldn't shorten %s: %m", file->name);
	errno = why;
	return err_fail(err, io_status(why), "tensorboard: couldn't write %s: %m", file->name);
}

static int write_start(struct event_file *file, uint64_t first, struct err *err)
{
	static const char version[] = "brain.Event:2";
	static const unsigned char start[] = { SESSION_LOG_STATUS, SESSION_START };
	struct message event;
	begin(&event, 0);
	add_bytes(&event, EVENT_FILE_VERSION, version, sizeof version - 1);
	if (append(file, &event, err) < 0)
		return -1;
	begin(&event, first);
	add_bytes(&event, EVENT_SESSION_LOG, start, sizeof start);
	return append(file, &event, err);
}

struct event_file *event_file_open(int dirfd, const char *name, uint64_t first, struct err *err)
{
	struct event_file *file = calloc(1, sizeof *file);
	if (!file) {
		err_set(err, "tensorboard: out of memory");
		return NULL;
	}
	snprintf(file->name, sizeof file->name, "%s", name);
	file->fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (file->fd < 0)
		err_fail(err, io_status(errno), "tensorboard: couldn't create %s: %m", name);
	if (file->fd < 0 || write_start(file, first, err) < 0) {
		event_file_close(file);
		return NULL;
	}
	return file;
}

int event_file_scalars(struct event_file *file, uint64_t step, const struct event_scalar *scalars,
	size_t count, struct err *err)
{
	struct message summary = { .size = 0 }, event;
	for (size_t i = 0; i < count; i++)
		add_scalar(&summary, &scalars[i]);
	begin(&event, step);
	add_bytes(&event, EVENT_SUMMARY, summary.bytes, summary.size);
	return append(file, &event, err);
}

void event_file_close(struct event_file *file)
{
	if (!file)
		return;
	if (file->fd >= 0)
		close(file->fd);
	free(file);
}
