/* SPDX-License-Identifier: Apache-2.0 */
/* Sends and receives frames over a non-blocking socket, which takes and gives them in pieces of any
 * size. */
#include "checkpoint/protocol/ckptd_conn.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "common/auto.h"

/* A payload's memory grows with the bytes received, since the size in its header is only a
 * claim. */
#define FIRST_ROOM 65536u

struct ckptd_frame {
	struct ckptd_frame *next;
	size_t size, done;
	int descriptors[CKPTD_DESCRIPTORS];
	int descriptor_count;
	char bytes[];
};

union control {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(sizeof(int) * CKPTD_DESCRIPTORS)];
};

void ckptd_conn_open(struct ckptd_conn *conn, int fd)
{
	*conn = (struct ckptd_conn) { .fd = fd };
	fcntl(fd, F_SETFD, FD_CLOEXEC);
}

static void close_descriptors(struct ckptd_conn *conn)
{
	while (conn->descriptor_count > 0)
		close(conn->descriptors[--conn->descriptor_count]);
}

static void drop_first(struct ckptd_conn *conn)
{
	struct ckptd_frame *frame = conn->first;
	conn->first = frame->next;
	if (!conn->first)
		conn->last = NULL;
	conn->pending -= frame->size;
	free(frame);
}

void ckptd_conn_close(struct ckptd_conn *conn)
{
	if (conn->fd >= 0)
		close(conn->fd);
	close_descriptors(conn);
	while (conn->first)
		drop_first(conn);
	free(conn->payload);
	*conn = (struct ckptd_conn) { .fd = -1 };
}

/* ---- out ---- */

static struct ckptd_frame *make_frame(const struct ckptd_message *message, int descriptors,
	struct err *err)
{
	AUTO_FREE char *payload = NULL;
	size_t size;
	if (ckptd_encode(message, &payload, &size, err) < 0)
		return NULL;
	struct ckptd_frame *frame = calloc(1, sizeof *frame + CKPTD_HEADER_SIZE + size);
	if (!frame) {
		err_set(err, "protocol: no memory");
		return NULL;
	}
	const struct ckptd_header header = { message->type, (uint32_t)size, descriptors };
	ckptd_header_encode(&header, (unsigned char *)frame->bytes);
	memcpy(frame->bytes + CKPTD_HEADER_SIZE, payload, size);
	frame->size = CKPTD_HEADER_SIZE + size;
	return frame;
}

/* Descriptors are sent with the first byte of their frame, and with no other. */
static ssize_t send_some(int fd, const struct ckptd_frame *frame)
{
	union control control = { .bytes = "" };
	size_t ints = sizeof(int) * (size_t)frame->descriptor_count;
	struct iovec piece = { (void *)(uintptr_t)(frame->bytes + frame->done),
		frame->size - frame->done };
	struct msghdr message = { .msg_iov = &piece, .msg_iovlen = 1 };
	if (frame->done == 0 && ints > 0) {
		message.msg_control = control.bytes;
		message.msg_controllen = CMSG_SPACE(ints);
		struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
		rights->cmsg_level = SOL_SOCKET;
		rights->cmsg_type = SCM_RIGHTS;
		rights->cmsg_len = CMSG_LEN(ints);
		memcpy(CMSG_DATA(rights), frame->descriptors, ints);
	}
	return sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

int ckptd_conn_flush(struct ckptd_conn *conn, struct err *err)
{
	while (conn->first) {
		ssize_t n = send_some(conn->fd, conn->first);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			return 0;
		if (n < 0)
			return err_fail(err, EXIT_LOST, "protocol: couldn't send: %m");
		conn->first->done += (size_t)n;
		if (conn->first->done == conn->first->size)
			drop_first(conn);
	}
	return 0;
}

int ckptd_conn_send(struct ckptd_conn *conn, const struct ckptd_message *message,
	const int *descriptors, int count, struct err *err)
{
	struct ckptd_frame *frame = make_frame(message, count, err);
	if (!frame)
		return -1;
	for (int i = 0; i < count; i++)
		frame->descriptors[i] = descriptors[i];
	frame->descriptor_count = count;
	if (conn->last)
		conn->last->next = frame;
	else
		conn->first = frame;
	conn->last = frame;
	conn->pending += frame->size;
	return ckptd_conn_flush(conn, err);
}

void ckptd_conn_refuse(struct ckptd_conn *conn, const struct err *why)
{
	const struct ckptd_message refused = { .type = CKPTD_REFUSED,
		.refused = { why->status, why->text } };
	ckptd_conn_send(conn, &refused, NULL, 0, NULL);
}

/* ---- in ---- */

static void take_descriptors(struct ckptd_conn *conn, struct msghdr *message)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < count; i++) {
			int fd;
			memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
			if (conn->descriptor_count < CKPTD_DESCRIPTORS)
				conn->descriptors[conn->descriptor_count++] = fd;
			else
				close(fd);
		}
	}
}

/* Only the read that begins a frame has room for descriptors; the kernel closes those that come
 * with any other byte. */
static ssize_t read_some(struct ckptd_conn *conn, void *to, size_t size)
{
	union control control;
	struct iovec piece = { to, size };
	struct msghdr message = { .msg_iov = &piece, .msg_iovlen = 1 };
	if (conn->have > 0)
		return recv(conn->fd, to, size, MSG_DONTWAIT);
	message.msg_control = control.bytes;
	message.msg_controllen = sizeof control.bytes;
	close_descriptors(conn);
	ssize_t n = recvmsg(conn->fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	if (n > 0)
		take_descriptors(conn, &message);
	return n;
}

/* 1 when something came, 0 when nothing has come yet, -1 when nothing will come any more. */
static int fill(struct ckptd_conn *conn, void *to, size_t size, struct err *err)
{
	ssize_t n;
	do
		n = read_some(conn, to, size);
	while (n < 0 && errno == EINTR);
	if (n > 0) {
		conn->have += (size_t)n;
		return 1;
	}
	if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
		return 0;
	if (n < 0)
		return err_fail(err, EXIT_LOST, "protocol: couldn't receive: %m");
	return err_fail(err, EXIT_LOST,
		conn->have > 0 ? "protocol: the connection ended within a message"
					   : "protocol: the other side closed the connection");
}

static int check_header(struct ckptd_conn *conn, struct err *err)
{
	if (ckptd_header_decode(conn->header_bytes, &conn->header, err) < 0)
		return -1;
	if (conn->limit > 0 && conn->header.size > conn->limit)
		return err_fail(err, EXIT_DATA, "protocol: a first message of %u bytes is too large",
			(unsigned)conn->header.size);
	if (conn->header.descriptors != conn->descriptor_count)
		return err_fail(err, EXIT_DATA, "protocol: %d descriptors came where %d were announced",
			conn->descriptor_count, conn->header.descriptors);
	return 0;
}

static int make_room(struct ckptd_conn *conn, size_t got, struct err *err)
{
	size_t room = conn->room ? conn->room : FIRST_ROOM;
	if (conn->room && got < conn->room)
		return 0;
	while (room <= got)
		room *= 2;
	char *payload = realloc(conn->payload, room);
	if (!payload)
		return err_fail(err, EXIT_LOST, "protocol: no memory for a message of %u bytes",
			(unsigned)conn->header.size);
	conn->payload = payload;
	conn->room = room;
	return 0;
}

/* Decodes a complete frame and resets the state for the next one. */
static int finish_frame(struct ckptd_conn *conn, struct ckptd_message *message, struct err *err)
{
	int rc = ckptd_decode(conn->header.type, conn->payload ? conn->payload : "", conn->header.size,
		message, err);
	free(conn->payload);
	conn->payload = NULL;
	conn->room = conn->have = 0;
	return rc < 0 ? -1 : 1;
}

int ckptd_conn_receive(struct ckptd_conn *conn, struct ckptd_message *message, struct err *err)
{
	for (;;) {
		if (conn->have < CKPTD_HEADER_SIZE) {
			int rc =
				fill(conn, conn->header_bytes + conn->have, CKPTD_HEADER_SIZE - conn->have, err);
			if (rc <= 0)
				return rc;
			if (conn->have == CKPTD_HEADER_SIZE && check_header(conn, err) < 0)
				return -1;
			continue;
		}
		size_t got = conn->have - CKPTD_HEADER_SIZE, left = conn->header.size - got;
		if (left == 0)
			return finish_frame(conn, message, err);
		if (make_room(conn, got, err) < 0)
			return -1;
		int rc =
			fill(conn, conn->payload + got, left < conn->room - got ? left : conn->room - got, err);
		if (rc <= 0)
			return rc;
	}
}

int ckptd_conn_take(struct ckptd_conn *conn, int descriptors[CKPTD_DESCRIPTORS])
{
	int count = conn->descriptor_count;
	memcpy(descriptors, conn->descriptors, sizeof conn->descriptors);
	conn->descriptor_count = 0;
	return count;
}

short ckptd_conn_events(const struct ckptd_conn *conn)
{
	return (short)(POLLIN | (conn->first ? POLLOUT : 0));
}

int ckptd_conn_await(struct ckptd_conn *conn, struct ckptd_message *message,
	struct deadline deadline, struct err *err)
{
	for (;;) {
		if (ckptd_conn_flush(conn, err) < 0)
			return -1;
		int rc = ckptd_conn_receive(conn, message, err);
		if (rc != 0)
			return rc;
		struct pollfd wait = { .fd = conn->fd, .events = ckptd_conn_events(conn) };
		if (deadline_passed(deadline))
			return err_fail(err, EXIT_LOST, "protocol: no answer came in time");
		poll(&wait, 1, (int)(deadline_left(deadline) * 1000) + 1);
	}
}
