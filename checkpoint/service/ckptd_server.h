/* SPDX-License-Identifier: Apache-2.0 */
/* The service: one loop that takes clients in, looks after their sessions, and knows when to end.
 */
#ifndef MUSTER_CKPTD_SERVER_H
#define MUSTER_CKPTD_SERVER_H

#include "checkpoint/protocol/ckptd_socket.h"
#include "common/err.h"

struct ckptd_server_plan {
	struct ckptd_socket *listening; /* borrowed; NULL: there is only the client below */
	int client;                     /* a connected socket, taken over; -1: none */
	const char *job;                /* for people; "" if there is none */
	double patience;                /* seconds for the other parts of a save */
	const char
		*alive; /* command that says with status 1 that the job is gone; NULL: nobody is asked */
	double alive_every; /* seconds */
};

/* Runs until its end: FINISH; the job or the socket's folder is gone; without a socket, the client
 * has gone. Then everything that was handed over has had its end, but for FINISH's deadline. -1: it
 * couldn't start. */
int ckptd_server_run(const struct ckptd_server_plan *plan, struct err *err);

#endif
