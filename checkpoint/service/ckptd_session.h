/* SPDX-License-Identifier: Apache-2.0 */
/* One client of the service: its connection, its memory and directory, its worker, and what it
 * tells or hears of the other parts. It outlives its client until everything that was handed over
 * has had its end. */
#ifndef MUSTER_CKPTD_SESSION_H
#define MUSTER_CKPTD_SESSION_H

#include "checkpoint/protocol/ckptd_polls.h"
#include "checkpoint/protocol/ckptd_proto.h"
#include "common/clock.h"
#include "common/err.h"

/* What all sessions of a service have in common. */
struct ckptd_service {
	double patience; /* seconds for the other parts of a save */
	int wake;        /* eventfd: a worker has news */
	bool quiet;      /* what a client hears of is not logged: it says it itself */
	void (*lost)(void *arg, const char *line); /* a save failed, and no client hears of it */
	void *arg;
};

struct ckptd_session;

/* Takes over the connection, the ATTACH and its descriptors, also on an error; then the client has
 * been told why. */
struct ckptd_session *ckptd_session_open(const struct ckptd_service *service,
	struct ckptd_conn *conn, struct ckptd_message *attach, struct err *err);

void ckptd_session_poll(const struct ckptd_session *session, struct ckptd_polls *polls);

/* Does what can be done without waiting. */
void ckptd_session_step(struct ckptd_session *session);

/* Whether the client is there still. */
bool ckptd_session_connected(const struct ckptd_session *session);

/* Whether something that was handed over has not had its end. */
bool ckptd_session_busy(const struct ckptd_session *session);

/* Whether it is of the same part of the same attempt. */
bool ckptd_session_is(const struct ckptd_session *session, const struct ckptd_attach *attach);

/* From now on no save is taken, and other parts are waited for until the deadline only. */
void ckptd_session_finish(struct ckptd_session *session, struct deadline deadline);

/* One line about the session; and one for each save that has not had its end. */
void ckptd_session_describe(const struct ckptd_session *session, char *line, size_t size);
void ckptd_session_list(const struct ckptd_session *session,
	void (*line)(void *arg, const char *text), void *arg);

/* Ends one that is not busy. */
void ckptd_session_close(struct ckptd_session *session);

#endif
