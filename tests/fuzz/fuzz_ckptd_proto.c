/* SPDX-License-Identifier: Apache-2.0 */
/* libFuzzer harness of the checkpoint service's protocol. The first byte says what the rest is: the
 * payload of a message of that type; a stream of frames as a socket gives it; an address. What is
 * accepted comes back as it was, and all of a snapshot that it describes lies in its buffer; what
 * is refused has its one line. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "checkpoint/protocol/ckptd_conn.h"
#include "checkpoint/protocol/ckptd_save.h"
#include "checkpoint/protocol/ckptd_tcp.h"

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size);

#define BUFFER_SIZE 4096

static void refused(const struct err *err)
{
	if (!err->text[0] || strchr(err->text, '\n')
		|| (err->status != EXIT_DATA && err->status != EXIT_LOST))
		abort();
}

static void read_all(const void *data, uint64_t size)
{
	static volatile unsigned char sum;
	for (uint64_t i = 0; data && i < size; i++)
		sum = (unsigned char)(sum + ((const unsigned char *)data)[i]);
}

/* Both are written alike. */
static void are_equal(const struct ckptd_message *first, const struct ckptd_message *second)
{
	char *texts[2];
	size_t sizes[2];
	struct err err;
	if (ckptd_encode(first, &texts[0], &sizes[0], &err) < 0
		|| ckptd_encode(second, &texts[1], &sizes[1], &err) < 0 || sizes[0] != sizes[1]
		|| memcmp(texts[0], texts[1], sizes[0]) != 0)
		abort();
	free(texts[0]);
	free(texts[1]);
}

/* With a buffer of exactly the size that was promised: whatever lies outside is found. */
static void use_snapshot(const struct ckptd_save *save)
{
	static char buffer[BUFFER_SIZE];
	const struct ckptd_attach attach = { .part = save->at.step % 2,
		.parts = 2,
		.buffers = 2,
		.buffer_bytes = BUFFER_SIZE };
	const struct snapshot_memory memory = { .buffers = 2,
		.bytes = BUFFER_SIZE,
		.base = { buffer } };
	struct err err = { .text = "" };
	struct snapshot snapshot;
	if (ckptd_save_check(save, &attach, &err) < 0) {
		refused(&err);
		return;
	}
	if (save->buffer < 0)
		return;
	if (ckptd_save_snapshot(save, &attach, buffer, &snapshot, NULL) < 0)
		abort();
	for (size_t i = 0; i < snapshot.tensor_count; i++) {
		const struct snapshot_tensor *tensor = &snapshot.tensors[i];
		uint64_t elements;
		if (safetensors_elements(tensor->shape, tensor->dims, &elements) < 0)
			abort();
		read_all(tensor->data, elements * safetensors_dtype_bits(tensor->dtype) / 8);
	}
	for (size_t i = 0; i < snapshot.slice_count; i++)
		for (int s = 0; s < SNAPSHOT_STATES; s++)
			read_all(snapshot.slices[i].state[s], snapshot.slices[i].count * sizeof(float));
	struct ckptd_save again;
	if (ckptd_save_describe(&again, &snapshot, &memory, (int)save->buffer, NULL) < 0)
		abort();
	const struct ckptd_message first = { .type = CKPTD_SAVE, .save = *save },
							   second = { .type = CKPTD_SAVE, .save = again };
	are_equal(&first, &second);
	ckptd_save_release(&again);
	ckptd_save_free_snapshot(&snapshot);
}

static void comes_back(const struct ckptd_message *message)
{
	struct ckptd_message again;
	char *text;
	size_t size;
	struct err err;
	if (ckptd_encode(message, &text, &size, &err) < 0
		|| ckptd_decode(message->type, text, size, &again, &err) < 0)
		abort();
	are_equal(message, &again);
	ckptd_message_release(&again);
	free(text);
}

static void look_at(struct ckptd_message *message)
{
	comes_back(message);
	if (message->type == CKPTD_SAVE)
		use_snapshot(&message->save);
	ckptd_message_release(message);
}

static void decode(enum ckptd_type type, const unsigned char *bytes, size_t size)
{
	struct ckptd_message message;
	struct err err = { .text = "" };
	char *payload = malloc(size + 1);
	memcpy(payload, bytes, size);
	if (ckptd_decode(type, payload, size, &message, &err) == 0)
		look_at(&message);
	else
		refused(&err);
	free(payload);
}

static void receive(const unsigned char *bytes, size_t size)
{
	struct ckptd_conn conn;
	struct ckptd_message message;
	struct err err = { .text = "" };
	int ends[2], rc;
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) < 0
		|| write(ends[1], bytes, size) != (ssize_t)size)
		abort();
	close(ends[1]);
	ckptd_conn_open(&conn, ends[0]);
	while ((rc = ckptd_conn_receive(&conn, &message, &err)) > 0)
		look_at(&message);
	if (rc == 0)
		abort(); /* the other end is closed: it has to say so */
	refused(&err);
	ckptd_conn_close(&conn);
}

static void parse_address(const unsigned char *bytes, size_t size)
{
	struct ckptd_address address;
	struct err err;
	char *text = malloc(size + 1), again[CKPTD_ADDRESS_SIZE];
	memcpy(text, bytes, size);
	text[size] = '\0';
	if (ckptd_address_parse(text, &address, &err) == 0) {
		/* A port may have been written otherwise; what it means is the same. */
		snprintf(again, sizeof again, "%s:%d:%s", address.host, address.port, address.secret);
		struct ckptd_address second;
		if (ckptd_address_parse(again, &second, &err) < 0 || strcmp(second.host, address.host) != 0
			|| second.port != address.port || strcmp(second.secret, address.secret) != 0)
			abort();
	}
	free(text);
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
	if (size == 0)
		return 0;
	unsigned kind = bytes[0] % (CKPTD_TYPES + 1);
	if (kind == 0)
		receive(bytes + 1, size - 1);
	else if (kind == CKPTD_TYPES)
		parse_address(bytes + 1, size - 1);
	else
		decode((enum ckptd_type)kind, bytes + 1, size - 1);
	return 0;
}
