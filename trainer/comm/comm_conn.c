/* SPDX-License-Identifier: Apache-2.0 */
/* Data is a stream of bytes each way: frames only tell how many come before the next word. A large
 * body is read straight into its buffer, small frames through one buffer on the stack. */
#include "trainer/comm/comm_conn.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "common/bytes.h"

#define INLET 4096 /* bytes that are read beside a body */

enum frame { FRAME_DATA = 1, FRAME_POSTED, FRAME_GOODBYE };

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

static void append(struct comm_conn_queue *queue, struct comm_conn_transfer *transfer)
{
	transfer->next = NULL;
	if (queue->tail)
		queue->tail->next = transfer;
	else
		queue->head = transfer;
	queue->tail = transfer;
}

/* More of the first transfer is done; one that is done as a whole leaves the queue. */
static void advance(struct comm_conn *conn, struct comm_conn_queue *queue, size_t bytes)
{
	struct comm_conn_transfer *first = queue->head;
	size_t chunk = first->done / COMM_CONN_CHUNK;
	first->done += bytes;
	if (first->done == first->bytes) {
		queue->head = first->next;
		if (!queue->head)
			queue->tail = NULL;
	}
	if (first->done == first->bytes || first->done / COMM_CONN_CHUNK != chunk)
		conn->moved = true;
}

/* ---- writing ---- */

static void put_head(struct comm_conn *conn, enum frame frame, size_t size, uint64_t number)
{
	unsigned char *head = conn->out_head + conn->out_head_size;
	bytes_put_le32(head, frame);
	bytes_put_le32(head + 4, (uint32_t)size);
	bytes_put_le64(head + 8, number);
	conn->out_head_size += COMM_CONN_HEAD;
}

static void put_body(struct comm_conn *conn, enum frame frame, const char *body, size_t size,
	struct comm_conn_transfer *transfer)
{
	put_head(conn, frame, size, 0);
	conn->out = body;
	conn->out_left = size;
	conn->out_transfer = transfer;
}

/* Bytes of the first send that may go now. */
static size_t sendable(const struct comm_conn *conn)
{
	const struct comm_conn_transfer *first = conn->sends.head;
	if (!first || conn->silent)
		return 0;
	size_t window = (size_t)(conn->permitted + COMM_CONN_WINDOW - conn->sent);
	return least(least(first->ready - first->begun, window), COMM_CONN_CHUNK);
}

/* The peer hears of new receives when they are half a window: more often would cost it time, less
 * often would make it wait. */
static bool has_news(const struct comm_conn *conn)
{
	return !conn->silent && conn->posted - conn->told >= COMM_CONN_WINDOW / 2;
}

bool comm_conn_is_pending(const struct comm_conn *conn)
{
	if (conn->fd < 0 || conn->unsendable || conn->ended)
		return false;
	return conn->out_head_sent < conn->out_head_size || conn->out_left > 0 || has_news(conn)
		|| (conn->goodbye && !conn->silent) || sendable(conn) > 0;
}

/* Makes the next frame, where there is one and none is under way. */
static void next_frame(struct comm_conn *conn)
{
	if (conn->out_head_sent < conn->out_head_size || conn->out_left > 0)
		return;
	conn->out_head_size = conn->out_head_sent = 0;
	if (has_news(conn)) {
		put_head(conn, FRAME_POSTED, 0, conn->posted);
		conn->told = conn->posted;
	}
	if (conn->goodbye && !conn->silent) {
		put_body(conn, FRAME_GOODBYE, conn->goodbye, conn->goodbye_bytes, NULL);
		conn->silent = true;
		return;
	}
	size_t bytes = sendable(conn);
	if (bytes > 0) {
		struct comm_conn_transfer *first = conn->sends.head;
		put_body(conn, FRAME_DATA, first->buffer + first->begun, bytes, first);
		first->begun += bytes;
		conn->sent += bytes;
	}
}

static void note_written(struct comm_conn *conn, size_t bytes)
{
	size_t head = least(bytes, conn->out_head_size - conn->out_head_sent);
	conn->traffic += bytes;
	conn->out_head_sent += head;
	bytes -= head;
	conn->out += bytes;
	conn->out_left -= bytes;
	if (conn->out_transfer && bytes > 0)
		advance(conn, &conn->sends, bytes);
}

void comm_conn_write(struct comm_conn *conn)
{
	conn->blocked = false;
	while (comm_conn_is_pending(conn)) {
		next_frame(conn);
		struct iovec parts[] = {
			{ conn->out_head + conn->out_head_sent, conn->out_head_size - conn->out_head_sent },
			{ (void *)conn->out, conn->out_left },
		};
		const struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2 };
		ssize_t written = sendmsg(conn->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (written >= 0) {
			note_written(conn, (size_t)written);
		} else if (errno == EAGAIN || errno == EWOULDBLOCK) {
			conn->blocked = true;
			return;
		} else if (errno != EINTR) {
			conn->unsendable = true; /* what the peer said before is still to be read */
		}
	}
}

void comm_conn_open(struct comm_conn *conn, int fd, const void *hello, size_t bytes)
{
	conn->fd = fd;
	memcpy(conn->out_head, hello, bytes);
	conn->out_head_size = bytes;
}

void comm_conn_send(struct comm_conn *conn, struct comm_conn_transfer *transfer)
{
	append(&conn->sends, transfer);
}

void comm_conn_say(struct comm_conn *conn, const void *goodbye, size_t bytes)
{
	conn->goodbye = goodbye;
	conn->goodbye_bytes = bytes;
}

/* ---- reading ---- */

void comm_conn_end(struct comm_conn *conn, int error)
{
	conn->ended = conn->moved = true;
	conn->error = error;
}

/* Keeps data for which there is no receive yet. The peer may send no more than a window of it. */
static void keep(struct comm_conn *conn, const char *bytes, size_t size)
{
	if (!conn->early)
		conn->early = malloc(COMM_CONN_WINDOW);
	if (!conn->early || size > COMM_CONN_WINDOW - conn->early_size) {
		comm_conn_end(conn, 0);
		return;
	}
	if (conn->early_begin + conn->early_size + size > COMM_CONN_WINDOW) {
		memmove(conn->early, conn->early + conn->early_begin, conn->early_size);
		conn->early_begin = 0;
	}
	memcpy(conn->early + conn->early_begin + conn->early_size, bytes, size);
	conn->early_size += size;
}

static void take_data(struct comm_conn *conn, const char *bytes, size_t size)
{
	while (size > 0 && conn->receives.head) {
		struct comm_conn_transfer *first = conn->receives.head;
		size_t part = least(size, first->bytes - first->done);
		memcpy(first->buffer + first->done, bytes, part);
		advance(conn, &conn->receives, part);
		bytes += part;
		size -= part;
	}
	if (size > 0)
		keep(conn, bytes, size);
}

void comm_conn_receive(struct comm_conn *conn, struct comm_conn_transfer *transfer)
{
	append(&conn->receives, transfer);
	conn->posted += transfer->bytes;
	size_t part = least(conn->early_size, transfer->bytes);
	if (part == 0)
		return;
	memcpy(transfer->buffer, conn->early + conn->early_begin, part);
	conn->early_begin += part;
	conn->early_size -= part;
	if (conn->early_size == 0)
		conn->early_begin = 0;
	advance(conn, &conn->receives, part);
}

static void take_head(struct comm_conn *conn)
{
	uint32_t frame = bytes_le32(conn->in_head), size = bytes_le32(conn->in_head + 4);
	uint64_t number = bytes_le64(conn->in_head + 8);
	conn->in_head_size = 0;
	conn->in_left = size;
	conn->in_data = frame == FRAME_DATA;
	bool good = frame == FRAME_DATA ? size > 0 && size <= COMM_CONN_CHUNK
		: frame == FRAME_POSTED     ? size == 0 && number >= conn->permitted
									: frame == FRAME_GOODBYE && size == conn->heard_bytes;
	if (!good || conn->said)
		comm_conn_end(conn, 0);
	else if (frame == FRAME_POSTED)
		conn->permitted = number;
}

static void take_body(struct comm_conn *conn, const char *bytes, size_t size)
{
	conn->in_left -= size;
	if (conn->in_data) {
		take_data(conn, bytes, size);
		return;
	}
	memcpy((char *)conn->heard + conn->heard_size, bytes, size);
	conn->heard_size += size;
	if (conn->in_left == 0)
		conn->said = conn->moved = true;
}

void comm_conn_take(struct comm_conn *conn, const void *bytes, size_t size)
{
	const char *at = bytes;
	while (size > 0 && !conn->ended) {
		size_t part;
		if (conn->in_left > 0) {
			part = least(size, conn->in_left);
			take_body(conn, at, part);
		} else {
			part = least(size, COMM_CONN_HEAD - conn->in_head_size);
			memcpy(conn->in_head + conn->in_head_size, at, part);
			conn->in_head_size += part;
			if (conn->in_head_size == COMM_CONN_HEAD)
				take_head(conn);
		}
		at += part;
		size -= part;
	}
}

/* Where the next bytes belong if they are data whose receive is posted; *size: how many. */
static char *place(const struct comm_conn *conn, size_t *size)
{
	const struct comm_conn_transfer *first = conn->receives.head;
	*size = first && conn->in_data ? least(conn->in_left, first->bytes - first->done) : 0;
	return *size ? first->buffer + first->done : NULL;
}

void comm_conn_read(struct comm_conn *conn, size_t most)
{
	char inlet[INLET];
	while (most > 0 && !conn->ended) {
		size_t direct;
		struct iovec parts[2] = { { .iov_base = place(conn, &direct) }, { inlet, sizeof inlet } };
		parts[0].iov_len = direct;
		struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2 };
		ssize_t got = recvmsg(conn->fd, &message, MSG_DONTWAIT);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			return;
		if (got <= 0) {
			comm_conn_end(conn, got < 0 ? errno : 0);
			return;
		}
		conn->traffic += (size_t)got;
		direct = least(direct, (size_t)got);
		if (direct > 0) {
			conn->in_left -= direct;
			advance(conn, &conn->receives, direct);
		}
		comm_conn_take(conn, inlet, (size_t)got - direct);
		most -= least(most, (size_t)got);
		if ((size_t)got < parts[0].iov_len + sizeof inlet)
			return; /* the rest comes with the next poll */
	}
}

void comm_conn_clear(struct comm_conn *conn)
{
	if (conn->fd >= 0)
		close(conn->fd);
	conn->fd = -1;
	free(conn->early);
	conn->early = NULL;
}
