/* SPDX-License-Identifier: Apache-2.0 */
/* One connection that carries frames, over a socket for which it never waits: a Unix socket, or
 * TCP, which carries no descriptors. */
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
	size_t have; /* bytes of header and payload received so far */
	char *payload;
	size_t room;
	int descriptors[CKPTD_DESCRIPTORS]; /* received with the frame */
	int descriptor_count;
	uint32_t limit; /* maximum size of a payload; 0: the limit of its type */
	struct ckptd_frame *first, *last;
	size_t pending; /* size of the frames that wait to be sent, in bytes */
};

/* Takes ownership of the descriptor. */
void ckptd_conn_open(struct ckptd_conn *conn, int fd);
void ckptd_conn_close(struct ckptd_conn *conn);

/* Queues the message and sends as much as the socket takes now. The descriptors are borrowed until
 * it is sent. -1: it can't be encoded, or the connection is broken (EXIT_LOST). */
int ckptd_conn_send(struct ckptd_conn *conn, const struct ckptd_message *message,
	const int *descriptors, int count, struct err *err);

/* Sends REFUSED with the reason, as far as the socket takes it now. The connection ends then. */
void ckptd_conn_refuse(struct ckptd_conn *conn, const struct err *why);

/* Sends queued frames as far as the socket takes them. -1: the connection is broken. */
int ckptd_conn_flush(struct ckptd_conn *conn, struct err *err);

/* Returns 1 with a message (released by ckptd_message_release; its descriptors come from
 * ckptd_conn_take), or 0 when none is complete yet. -1: the peer closed the connection, or it is
 * broken (EXIT_LOST), or the peer broke the protocol (EXIT_DATA). */
int ckptd_conn_receive(struct ckptd_conn *conn, struct ckptd_message *message, struct err *err);

/* Passes the descriptors of the last message to the caller; those that are not taken are closed
 * when the next message begins. Returns their number. */
int ckptd_conn_take(struct ckptd_conn *conn, int descriptors[CKPTD_DESCRIPTORS]);

/* As ckptd_conn_receive, but waits for a message, and sends queued frames meanwhile; -1 with
 * EXIT_LOST at the deadline. */
int ckptd_conn_await(struct ckptd_conn *conn, struct ckptd_message *message,
	struct deadline deadline, struct err *err);

/* The events that poll() should wait for. */
short ckptd_conn_events(const struct ckptd_conn *conn);

#endif
