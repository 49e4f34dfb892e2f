/* SPDX-License-Identifier: Apache-2.0 */
/* What one poll() waits for, collected anew each time: whoever wakes it up, everybody then does what he can without blocking. */
#ifndef MUSTER_CKPTD_POLLS_H
#define MUSTER_CKPTD_POLLS_H

#include <poll.h>

#include "checkpoint/ckptd_conn.h"

#define CKPTD_POLLS_MAX 1024

struct ckptd_polls {
	struct pollfd fds[CKPTD_POLLS_MAX];
	nfds_t count;
	double seconds; /* at most */
};

/* Beyond CKPTD_POLLS_MAX a descriptor is looked at when the time is over. */
static inline void ckptd_polls_add(struct ckptd_polls *polls, int fd, short events)
{
	if (fd >= 0 && polls->count < CKPTD_POLLS_MAX)
		polls->fds[polls->count++] = (struct pollfd){ .fd = fd, .events = events };
}

static inline void ckptd_polls_conn(struct ckptd_polls *polls, const struct ckptd_conn *conn)
{
	ckptd_polls_add(polls, conn->fd, ckptd_conn_events(conn));
}

static inline void ckptd_polls_within(struct ckptd_polls *polls, double seconds)
{
	if (seconds < polls->seconds)
		polls->seconds = seconds < 0 ? 0 : seconds;
}

static inline void ckptd_polls_wait(struct ckptd_polls *polls)
{
	poll(polls->fds, polls->count, (int)(polls->seconds * 1000) + 1);
}

#endif
