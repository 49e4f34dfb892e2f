/* SPDX-License-Identifier: Apache-2.0 */
/* The protocol of the checkpoint service (doc/ckptd-protocol.md): frames and messages, encoded and
 * decoded by pure functions. A decoded message has passed every check that is possible with the
 * message alone, so its readers need not repeat them; a SAVE is checked against the ATTACH
 * (ckptd_save_check). */
#ifndef MUSTER_CKPTD_PROTO_H
#define MUSTER_CKPTD_PROTO_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "checkpoint/protocol/ckptd_attach.h"
#include "checkpoint/protocol/ckptd_save.h"
#include "common/err.h"

#define CKPTD_VERSION 4
#define CKPTD_HEADER_SIZE 16
#define CKPTD_PAYLOAD_MAX (16u << 20)
#define CKPTD_HELLO_MAX 4096u /* bytes that an unknown peer can make a service keep */
#define CKPTD_DESCRIPTORS (1 + SNAPSHOT_BUFFERS) /* maximum number with one frame */
#define CKPTD_PARTS_MAX 65536

enum ckptd_type {
	CKPTD_ATTACH = 1,
	CKPTD_ATTACHED,
	CKPTD_SAVE,
	CKPTD_PROGRESS,
	CKPTD_SAVE_WRITTEN, /* this and the next two have the order of enum save_outcome */
	CKPTD_SAVE_DURABLE,
	CKPTD_SAVE_FAILED,
	CKPTD_STATUS,
	CKPTD_STATE,
	CKPTD_FINISH,
	CKPTD_FINISHED,
	CKPTD_HELLO,
	CKPTD_PART,
	CKPTD_PART_TAKEN,
	CKPTD_DECIDED,
	CKPTD_REFUSED,
	CKPTD_LEFT,
	CKPTD_TYPES
};

/* "ATTACH" and so on. */
const char *ckptd_type_name(enum ckptd_type type);

struct ckptd_header {
	enum ckptd_type type;
	uint32_t size; /* of the payload */
	int descriptors;
};

void ckptd_header_encode(const struct ckptd_header *header, unsigned char bytes[CKPTD_HEADER_SIZE]);

/* Refuses what is not a header of this version. -1 with status EXIT_DATA, as from all decoding
 * here. */
int ckptd_header_decode(const unsigned char bytes[CKPTD_HEADER_SIZE], struct ckptd_header *header,
	struct err *err);

struct ckptd_attached {
	int64_t pid, port;
};
struct ckptd_progress {
	int64_t step, bytes, total;
};
struct ckptd_lines {
	int64_t pid, clients;
	const char *job;
	const char **lines;
	size_t count;
}; /* FINISHED has lines only */
struct ckptd_finish {
	int64_t seconds;
};
struct ckptd_hello {
	const char *secret, *token;
	int64_t part, parts;
};
struct ckptd_part {
	int64_t step;
	const char *text;
	int64_t status;
	const char *fault;
};
struct ckptd_decided {
	int64_t step;
	bool committed;
}; /* also for PART_TAKEN and LEFT, without committed */
struct ckptd_refused {
	enum exit_status status;
	const char *text;
};

struct ckptd_message {
	enum ckptd_type type;
	union {
		struct ckptd_attach attach;
		struct ckptd_attached attached;
		struct ckptd_save save;
		struct ckptd_progress progress;
		struct save_result result; /* of WRITTEN, DURABLE and FAILED; has its own text */
		struct ckptd_lines state, finished;
		struct ckptd_finish finish;
		struct ckptd_hello hello;
		struct ckptd_part part;
		struct ckptd_decided decided;
		struct ckptd_refused refused;
	};
	json_t *json; /* of a decoded message: holds its texts */
};

/* The message that tells a client the result of a save. */
struct ckptd_message ckptd_result_message(const struct save_result *result);

/* Encodes the payload; malloc'ed and the caller's, with a NUL after its *size bytes. -1 when a text
 * is not UTF-8 or the payload is too large. */
int ckptd_encode(const struct ckptd_message *message, char **payload, size_t *size,
	struct err *err);

/* The message's texts and arrays are valid until ckptd_message_release, which is not needed after a
 * failed call. */
int ckptd_decode(enum ckptd_type type, const char *payload, size_t size,
	struct ckptd_message *message, struct err *err);
void ckptd_message_release(struct ckptd_message *message);

#endif
