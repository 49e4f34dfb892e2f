/* SPDX-License-Identifier: Apache-2.0 */
/* The descriptors that one poll() waits for, collected anew each time. After each wake-up, whatever
 * its cause, every user does what it can without blocking. */
#ifndef MUSTER_CKPTD_POLLS_H
#define MUSTER_CKPTD_POLLS_H

#include <poll.h>
#include <stdlib.h>

#include "checkpoint/protocol/ckptd_conn.h"
#include "common/acceptor.h"

/* Seconds after which to look at descriptors that couldn't be added, for lack of memory. */
#define CKPTD_POLLS_LOOK 0.1

struct ckptd_polls {
	struct pollfd *fds; /* malloc'ed; freed by the owner of the struct */
	nfds_t count, room;
	double seconds; /* maximum time to wait */
};

static inline void ckptd_polls_within(struct ckptd_polls *polls, double seconds)
{
	if (seconds < polls->seconds)
		polls->seconds = seconds < 0 ? 0 : seconds;
}

static inline void ckptd_polls_add(struct ckptd_polls *polls, int fd, short events)
{
	if (fd < 0)
		return;
	if (polls->count == polls->room) {
		nfds_t room = polls->room ? 2 * polls->room : 64;
		struct pollfd *grown = realloc(polls->fds, room * sizeof *grown);
		if (!grown) {
			ckptd_polls_within(polls, CKPTD_POLLS_LOOK);
			return;
		}
		polls->fds = grown;
		polls->room = room;
	}
	polls->fds[polls->count++] = (struct pollfd) { .fd = fd, .events = events };
}

static inline void ckptd_polls_conn(struct ckptd_polls *polls, const struct ckptd_conn *conn)
{
	ckptd_polls_add(polls, conn->fd, ckptd_conn_events(conn));
}

static inline void ckptd_polls_acceptor(struct ckptd_polls *polls, const struct acceptor *acceptor)
{
	ckptd_polls_add(polls, acceptor_poll(acceptor, &polls->seconds), POLLIN);
}

static inline void ckptd_polls_wait(struct ckptd_polls *polls)
{
	poll(polls->fds, polls->count, (int)(polls->seconds * 1000) + 1);
}

#endif
