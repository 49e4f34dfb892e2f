/* SPDX-License-Identifier: Apache-2.0 */
/* One TCP connection of a communicator: transfers in the order in which both ranks post them, and
 * one goodbye, as frames (doc/rank-links.md). A peer may send COMM_CONN_WINDOW bytes more than this
 * rank has posted receives for, so what was not asked for yet never keeps a goodbye back.
 *
 * It has no thread and no lock: the caller serialises all calls, and polls the descriptor. */
#ifndef MUSTER_COMM_CONN_H
#define MUSTER_COMM_CONN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define COMM_CONN_WINDOW ((size_t)256 << 10) /* bytes */
#define COMM_CONN_CHUNK ((size_t)1 << 20)    /* bytes of the largest frame */
#define COMM_CONN_HEAD 16                    /* bytes of a frame's head */

/* A send or a receive: the caller's memory, linked in until it is done or the connection ends. */
struct comm_conn_transfer {
	struct comm_conn_transfer *next;
	char *buffer;
	size_t bytes;
	size_t ready; /* of a send: bytes that may go; the caller raises it */
	size_t begun; /* of a send: bytes that are in a frame */
	size_t done;  /* bytes that the kernel has, or that have come */
};

struct comm_conn_queue {
	struct comm_conn_transfer *head, *tail;
};

/* Zeroed but for the first three: a new connection. */
struct comm_conn {
	int fd;             /* -1: none yet */
	void *heard;        /* where the peer's goodbye goes */
	size_t heard_bytes; /* its length; any other is a fault */
	bool ended;         /* the peer's end, or a fault, was seen: nothing comes any more */
	int error;          /* the kernel's reason, 0 for none */
	bool said;          /* the peer's goodbye has come */
	bool moved;         /* something ended, or a chunk did, since the caller cleared this */
	uint64_t traffic;   /* bytes read and written */
	bool blocked;       /* the kernel takes no more: poll for writing */

	struct comm_conn_queue sends, receives;
	uint64_t sent, permitted; /* data bytes: in frames so far; for which the peer has receives */
	uint64_t posted, told;    /* the same of this rank's receives; what the peer knows of that */
	bool unsendable, silent;  /* writing failed; the goodbye was the last frame */

	unsigned char out_head[2 * COMM_CONN_HEAD];
	size_t out_head_size, out_head_sent;
	const char *out;
	size_t out_left;
	struct comm_conn_transfer *out_transfer;
	const void *goodbye;
	size_t goodbye_bytes;

	unsigned char in_head[COMM_CONN_HEAD];
	size_t in_head_size;
	size_t in_left; /* bytes of the frame's body that have yet to come */
	bool in_data;
	size_t heard_size;
	char *early; /* data that came before its receive, early_size bytes from early_begin on */
	size_t early_begin, early_size;
};

/* Gives it a non-blocking descriptor, which is closed with it, and the bytes to write first. Until
 * then transfers only queue. */
void comm_conn_open(struct comm_conn *conn, int fd, const void *hello, size_t bytes);

/* Nothing comes any more, for this reason. */
void comm_conn_end(struct comm_conn *conn, int error);

/* Appends a transfer. */
void comm_conn_send(struct comm_conn *conn, struct comm_conn_transfer *transfer);
void comm_conn_receive(struct comm_conn *conn, struct comm_conn_transfer *transfer);

/* After the frame that is under way these bytes go as the last frame; they are borrowed. */
void comm_conn_say(struct comm_conn *conn, const void *goodbye, size_t bytes);

/* Writes what may go without waiting. To be called after each of the above. */
void comm_conn_write(struct comm_conn *conn);

/* Whether something still has to be written for which nothing has to come first. */
bool comm_conn_is_pending(const struct comm_conn *conn);

/* Reads what is there without waiting, about `most` bytes of it. */
void comm_conn_read(struct comm_conn *conn, size_t most);

/* The same for bytes that were read already. */
void comm_conn_take(struct comm_conn *conn, const void *bytes, size_t size);

/* Closes the descriptor and frees what it holds; the transfers are the caller's. */
void comm_conn_clear(struct comm_conn *conn);

#endif
