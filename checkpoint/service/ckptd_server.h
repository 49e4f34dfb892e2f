/* SPDX-License-Identifier: Apache-2.0 */
/* The service: one loop that accepts clients, runs their sessions, and decides when to end. */
#ifndef MUSTER_CKPTD_SERVER_H
#define MUSTER_CKPTD_SERVER_H

#include "checkpoint/protocol/ckptd_socket.h"
#include "common/err.h"

struct ckptd_server_plan {
	struct ckptd_socket *listening; /* borrowed; NULL: `client` is the only one */
	int client;                     /* a connected socket, which the service then owns; -1: none */
	const char *job;                /* the job's name in messages; "" if there is none */
	double patience;                /* seconds to wait for the other parts of a save */
	/* Command whose exit status 1 means that the job is gone; NULL: don't ask. */
	const char *alive;
	double alive_every; /* seconds between runs of it */
};

/* Runs until the service is to end: after FINISH; when the job or the socket's folder is gone; or,
 * without a socket, when the client has gone. By then every save that was handed over has ended,
 * except at FINISH's deadline. -1 with err set: it couldn't start. */
int ckptd_server_run(const struct ckptd_server_plan *plan, struct err *err);

#endif
