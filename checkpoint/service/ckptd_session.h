/* SPDX-License-Identifier: Apache-2.0 */
/* One client of the service: its connection, memory, directory and worker, and its exchange with
 * the services of the other parts. A session lives on without its client until everything that was
 * handed over has ended. */
#ifndef MUSTER_CKPTD_SESSION_H
#define MUSTER_CKPTD_SESSION_H

#include "checkpoint/protocol/ckptd_polls.h"
#include "checkpoint/protocol/ckptd_proto.h"
#include "common/clock.h"
#include "common/err.h"

/* Shared by all sessions of a service. */
struct ckptd_service {
	double patience; /* seconds to wait for the other parts of a save */
	int wake;        /* eventfd to write to when a worker has news */
	bool quiet;      /* don't log what a client hears: the client logs it */
	void (*lost)(void *arg, const char *line); /* a save failed, and no client hears of it */
	void *arg;
};

struct ckptd_session;

/* Takes ownership of the connection, the ATTACH and its descriptors, even on an error; then it has
 * sent the client the reason. NULL with err set on an error. */
struct ckptd_session *ckptd_session_open(const struct ckptd_service *service,
	struct ckptd_conn *conn, struct ckptd_message *attach, struct err *err);

void ckptd_session_poll(const struct ckptd_session *session, struct ckptd_polls *polls);

/* Does whatever can be done without waiting. */
void ckptd_session_step(struct ckptd_session *session);

/* Whether the client is still connected. */
bool ckptd_session_connected(const struct ckptd_session *session);

/* Whether a save that was handed over has not ended. */
bool ckptd_session_busy(const struct ckptd_session *session);

/* Whether the session serves the same part of the same attempt as `attach`. */
bool ckptd_session_is(const struct ckptd_session *session, const struct ckptd_attach *attach);

/* From now on it refuses saves, and waits for other parts only until the deadline. */
void ckptd_session_finish(struct ckptd_session *session, struct deadline deadline);

/* Describes the session in one line; lists the saves that have not ended, one a line. */
void ckptd_session_describe(const struct ckptd_session *session, char *line, size_t size);
void ckptd_session_list(const struct ckptd_session *session,
	void (*line)(void *arg, const char *text), void *arg);

/* Ends a session that is not busy. */
void ckptd_session_close(struct ckptd_session *session);

#endif
