/* SPDX-License-Identifier: Apache-2.0 */
/* One connection that carries frames, over a socket that never blocks: a Unix one, or TCP, where no
 * descriptors travel. */
#ifndef MUSTER_CKPTD_CONN_H
#define MUSTER_CKPTD_CONN_H

#include "checkpoint/protocol/ckptd_proto.h"
#include "common/clock.h"

struct ckptd_frame; /* waits to be sent */

/* A value; ckptd_conn_open sets it up. */
struct ckptd_conn {
	int fd; /* -1: closed */
	unsigned char header_bytes[CKPTD_HEADER_SIZE];
	struct ckptd_header header;
	size_t have; /* bytes of header and payload that have come */
	char *payload;
	size_t room;
	int descriptors[CKPTD_DESCRIPTORS]; /* that came with the frame */
	int descriptor_count;
	uint32_t limit; /* of a payload; 0: that of its type */
	struct ckptd_frame *first, *last;
	size_t pending; /* bytes that wait to be sent */
};

/* Takes the descriptor over and makes it non-blocking. */
void ckptd_conn_open(struct ckptd_conn *conn, int fd);
void ckptd_conn_close(struct ckptd_conn *conn);

/* Queues the message and sends what the socket takes at once. The descriptors are borrowed until it
 * is sent. -1: it can't be encoded, or the connection is broken (EXIT_LOST). */
int ckptd_conn_send(struct ckptd_conn *conn, const struct ckptd_message *message,
	const int *descriptors, int count, struct err *err);

/* Sends what waits, as far as the socket takes it. -1: the connection is broken. */
int ckptd_conn_flush(struct ckptd_conn *conn, struct err *err);

/* 1 with a message (ckptd_message_release; descriptors that came with it: ckptd_conn_take), 0 when
 * there is none yet. -1: the other side has closed the connection, or it is broken (EXIT_LOST), or
 * broke the protocol (EXIT_DATA). */
int ckptd_conn_receive(struct ckptd_conn *conn, struct ckptd_message *message, struct err *err);

/* Hands out the descriptors of the last message; those that stay are closed with the next one. */
int ckptd_conn_take(struct ckptd_conn *conn, int descriptors[CKPTD_DESCRIPTORS]);

/* The same as ckptd_conn_receive, but waits; EXIT_LOST at the deadline. Sends what waits meanwhile.
 */
int ckptd_conn_await(struct ckptd_conn *conn, struct ckptd_message *message,
	struct deadline deadline, struct err *err);

/* What poll() has to wait for. */
short ckptd_conn_events(const struct ckptd_conn *conn);

#endif
