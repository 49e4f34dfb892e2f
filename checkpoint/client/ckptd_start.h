/* SPDX-License-Identifier: Apache-2.0 */
/* How a client gets a service: it connects to the node's, or starts one of its own. */
#ifndef MUSTER_CKPTD_START_H
#define MUSTER_CKPTD_START_H

#include "checkpoint/client/ckptd_process.h"
#include "checkpoint/protocol/ckptd_conn.h"
#include "common/err.h"

struct ckptd_link {
	struct ckptd_conn conn;
	struct ckptd_process process;
};

/* Connects to the service at `path`. 0, or -1 with err and errno set as by ckptd_socket_connect. */
int ckptd_start_connect(const char *path, struct ckptd_link *link, struct err *err);

/* Starts a service for this client alone: in its own process group, with no signal blocked, with no
 * descriptor of this process except standard error, and without a copy of this process's memory. It
 * is a child of this process, but outlives it. Safe in a process with threads. */
int ckptd_start_own(struct ckptd_link *link, struct err *err);

/* Closes the connection. A service of our own that does not end then keeps running. */
void ckptd_start_leave(struct ckptd_link *link);

#endif
