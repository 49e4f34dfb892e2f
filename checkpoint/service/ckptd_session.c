/* SPDX-License-Identifier: Apache-2.0 */
/* Passes messages between a client and its worker, and the worker's news to the services of the
 * other parts. */
#include "config.h"
#include "checkpoint/service/ckptd_session.h"

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/service/ckptd_hear.h"
#include "checkpoint/service/ckptd_report.h"
#include "checkpoint/service/ckptd_worker.h"
#include "common/log.h"

#define REPORT_SECONDS 15.0 /* maximum time for which an ending service tries to reach part 0's */
#define LEFT_SECONDS 5.0    /* the same when only the client has gone, as part 0's may have */

struct ckptd_session {
	const struct ckptd_service *service;
	struct ckptd_conn conn;       /* closed: the client has gone */
	struct ckptd_message message; /* the ATTACH */
	struct ckpt_dir dir;
	struct snapshot_memory memory;
	struct ckptd_worker *worker;
	struct ckptd_hear *hear;     /* for part 0 of several */
	struct ckptd_report *report; /* for parts other than 0 */
	bool busy[SNAPSHOT_BUFFERS]; /* handed over and not given back */
	bool deaf; /* sending failed, but messages that the client sent before may still be unread */
	bool finishing;
	int64_t handed; /* the last step handed over; -1: none */
	int64_t newest; /* the last step made durable; -1: none */
};

static const struct ckptd_attach *attach_of(const struct ckptd_session *session)
{
	return &session->message.attach;
}

/* ---- the client ---- */

/* The client has gone or is sent away; its saves go on. */
static void leave(struct ckptd_session *session)
{
	ckptd_conn_close(&session->conn);
	ckptd_worker_alone(session->worker);
	if (session->report)
		ckptd_report_left(session->report,
			session->handed < INT64_MAX ? session->handed + 1 : INT64_MAX, LEFT_SECONDS);
}

static void send_away(struct ckptd_session *session, const struct err *why)
{
	log_warn("service: the client of %s is sent away: %s", attach_of(session)->path, why->text);
	ckptd_conn_refuse(&session->conn, why);
	leave(session);
}

/* Whether the client can receive answers: its connection is open, and no answer has failed. */
static bool is_heard(const struct ckptd_session *session)
{
	return session->conn.fd >= 0 && !session->deaf;
}

/* A client that lives must not wait for answers that no longer come: it reads the end of the
 * connection, and hands over again what was not durable. */
static void deafen(struct ckptd_session *session)
{
	session->deaf = true;
	shutdown(session->conn.fd, SHUT_WR);
}

/* A failed answer does not end the session: the client may have handed over more before, which
 * hear_client reads first. */
static void answer(struct ckptd_session *session, const struct ckptd_message *message)
{
	struct err err;
	if (!is_heard(session) || ckptd_conn_send(&session->conn, message, NULL, 0, &err) == 0)
		return;
	if (err.status == EXIT_LOST) {
		deafen(session);
		return;
	}
	log_error("service: %s", err.text);
	leave(session);
}

static void answer_result(struct ckptd_session *session, const struct save_result *result)
{
	const struct ckptd_message message = ckptd_result_message(result);
	answer(session, &message);
}

/* Takes over the message of a save that is begun. */
static int take_save(struct ckptd_session *session, struct ckptd_message *message, struct err *err)
{
	const int64_t buffer = message->save.buffer, step = message->save.at.step;
	struct save_result refused = { .outcome = SAVE_FAILED, .step = step };
	if (ckptd_save_check(&message->save, attach_of(session), err) < 0)
		return err_prefix(err, "protocol: SAVE");
	if (buffer >= 0 && session->busy[buffer])
		return err_fail(err, EXIT_DATA, "protocol: SAVE: buffer %" PRId64 " was handed over before",
			buffer);
	if (session->finishing) {
		err_fail(&refused.err, EXIT_LOST, "service: it was told to end");
		answer_result(session, &refused);
		return 0;
	}
	if (ckptd_worker_save(session->worker, message) < 0)
		return err_fail(err, EXIT_LOST, "service: no memory");
	if (buffer >= 0)
		session->busy[buffer] = true;
	if (step > session->handed)
		session->handed = step;
	return 0;
}

static void hear_client(struct ckptd_session *session)
{
	struct ckptd_message message;
	struct err err;
	int rc;
	if (session->conn.fd < 0)
		return;
	if (!session->deaf && ckptd_conn_flush(&session->conn, &err) < 0)
		deafen(session);
	while ((rc = ckptd_conn_receive(&session->conn, &message, &err)) > 0) {
		rc = message.type == CKPTD_SAVE
			? take_save(session, &message, &err)
			: err_fail(&err, EXIT_DATA, "protocol: %s came where SAVE should",
				ckptd_type_name(message.type));
		ckptd_message_release(&message);
		if (rc < 0 || session->conn.fd < 0)
			break;
	}
	if (rc < 0 && session->conn.fd >= 0) {
		if (err.status == EXIT_LOST)
			leave(session);
		else
			send_away(session, &err);
	}
}

/* ---- the worker ---- */

/* Whether the log is the only place that reports it. */
static bool is_to_be_logged(const struct ckptd_session *session)
{
	return !session->service->quiet || !is_heard(session);
}

static void log_durable(const struct ckptd_session *session, const struct save_result *result)
{
	const struct ckptd_attach *attach = attach_of(session);
	char what[60] = "";
	if (!is_to_be_logged(session) || result->bytes == 0)
		return;
	if (result->outcome != SAVE_DURABLE)
		snprintf(what, sizeof what, "part %d of %d of ", (int)attach->part + 1, (int)attach->parts);
	log_info("checkpoint: %sstep %" PRId64 " of %s is durable: %.1f MB in %.2f s, %.2f GB/s", what,
		result->step, attach->path, (double)result->bytes * 1e-6, result->seconds,
		(double)result->bytes * 1e-9 / fmax(result->seconds, 1e-9));
}

static void on_failed(struct ckptd_session *session, const struct save_result *result)
{
	char line[sizeof result->err.text + 400];
	snprintf(line, sizeof line, "step %" PRId64 " of %.300s: %s", result->step,
		attach_of(session)->path, result->err.text);
	if (is_to_be_logged(session))
		log_error("checkpoint: couldn't save %s", line);
	answer_result(session, result);
	if (!is_heard(session))
		session->service->lost(session->service->arg, line);
}

static void tell_decided(void *arg, int64_t step, bool committed)
{
	const struct ckptd_message decided = { .type = CKPTD_DECIDED, .decided = { step, committed } };
	answer(arg, &decided);
}

static void on_progress(struct ckptd_session *session, const struct ckptd_news *news)
{
	const struct ckptd_message progress = { .type = CKPTD_PROGRESS,
		.progress = { news->result.step, (int64_t)news->result.bytes, (int64_t)news->total } };
	if (session->conn.pending == 0)
		answer(session, &progress);
}

/* A part other than 0 has ended, well or badly: part 0 must learn of it. */
static void report(struct ckptd_session *session, struct ckptd_news *news)
{
	struct ckptd_told told = { .result = news->result,
		.buffer = news->buffer,
		.owed = news->text,
		.text = news->text };
	while (ckptd_report_tell(session->report, &told) < 0)
		deadline_sleep(deadline_in(1), 0.1);
	news->text = NULL;
}

static void on_ended(struct ckptd_session *session, struct ckptd_news *news)
{
	const struct save_result *result = &news->result;
	if (result->outcome == SAVE_FAILED) {
		on_failed(session, result);
		if (session->report)
			report(session, news);
		return;
	}
	if (result->outcome == SAVE_DURABLE)
		session->newest = result->step;
	log_durable(session, result);
	answer_result(session, result);
	if (session->report)
		tell_decided(session, result->step, true);
}

static void on_news(struct ckptd_session *session, struct ckptd_news *news)
{
	/* The buffer of a durable part stays in use until part 0 knows of the part. */
	if (news->buffer >= 0 && news->type != NEWS_PART)
		session->busy[news->buffer] = false;
	switch (news->type) {
	case NEWS_PROGRESS: on_progress(session, news); break;
	case NEWS_PART:
		log_durable(session, &news->result);
		report(session, news);
		break;
	case NEWS_ENDED: on_ended(session, news); break;
	case NEWS_DECIDED:
		ckptd_hear_decided(session->hear, news->result.step, news->result.outcome == SAVE_DURABLE);
		break;
	}
}

/* ---- the other parts ---- */

static int on_part(void *arg, int64_t step, int part, char *text, size_t size,
	const struct err *fault)
{
	struct ckptd_session *session = arg;
	return ckptd_worker_tell(session->worker, step, part, text, size, fault);
}

static void on_left(void *arg, int64_t step, int part)
{
	struct ckptd_session *session = arg;
	ckptd_worker_left(session->worker, part, step);
}

static void on_taken(void *arg, const struct ckptd_told *told)
{
	struct ckptd_session *session = arg;
	if (told->buffer >= 0)
		session->busy[told->buffer] = false;
	answer_result(session, &told->result);
}

/* ---- opening and closing ---- */

/* AT_STATX_DONT_SYNC: a file server that hangs is not asked. */
static int check_directory(const struct ckptd_session *session, struct err *err)
{
	struct statx st;
	if (statx(session->dir.fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &st) < 0)
		return err_set(err, "service: couldn't look at the directory %s: %m", session->dir.path);
	if (!S_ISDIR(st.stx_mode))
		return err_fail(err, EXIT_DATA,
			"protocol: ATTACH: what was handed over as %s is no directory", session->dir.path);
	return 0;
}

static int adopt(struct ckptd_session *session, struct err *err)
{
	const struct ckptd_attach *attach = attach_of(session);
	int descriptors[CKPTD_DESCRIPTORS];
	int count = ckptd_conn_take(&session->conn, descriptors);
	session->dir.fd = descriptors[0];
	snprintf(session->dir.path, sizeof session->dir.path, "%s", attach->path);
	if (count != 1 + (int)attach->buffers) {
		for (int i = 1; i < count; i++)
			close(descriptors[i]);
		return err_fail(err, EXIT_DATA, "protocol: ATTACH: %d descriptors came for %d buffers",
			count, (int)attach->buffers);
	}
	if (snapshot_memory_adopt(&session->memory, descriptors + 1, (int)attach->buffers,
			(size_t)attach->buffer_bytes, err)
		< 0)
		return -1;
	return check_directory(session, err);
}

static int begin(struct ckptd_session *session, struct err *err)
{
	const struct ckptd_attach *attach = attach_of(session);
	const struct ckptd_service *service = session->service;
	if (adopt(session, err) < 0)
		return -1;
	const struct ckptd_hear_news heard = { on_part, on_left, session };
	if (attach->host && !(session->hear = ckptd_hear_open(attach, &heard, err)))
		return -1;
	const struct ckptd_report_news news = { on_taken, tell_decided, session };
	if (attach->first
		&& !(session->report = ckptd_report_open(attach, service->patience, &news, err)))
		return -1;
	const struct ckptd_worker_plan plan = { attach, session->dir, &session->memory,
		service->patience, service->wake };
	session->worker = ckptd_worker_start(&plan, err);
	return session->worker ? 0 : -1;
}

static void release(struct ckptd_session *session)
{
	ckptd_worker_stop(session->worker);
	ckptd_hear_close(session->hear);
	ckptd_report_close(session->report);
	ckptd_conn_close(&session->conn);
	snapshot_memory_release(&session->memory);
	if (session->dir.fd >= 0)
		close(session->dir.fd);
	ckptd_message_release(&session->message);
	free(session);
}

struct ckptd_session *ckptd_session_open(const struct ckptd_service *service,
	struct ckptd_conn *conn, struct ckptd_message *attach, struct err *err)
{
	struct ckptd_session *session = calloc(1, sizeof *session);
	if (!session) {
		err_fail(err, EXIT_LOST, "service: no memory");
		ckptd_conn_close(conn);
		ckptd_message_release(attach);
		return NULL;
	}
	*session = (struct ckptd_session) { .service = service,
		.conn = *conn,
		.message = *attach,
		.dir.fd = -1,
		.handed = -1,
		.newest = -1 };
	*conn = (struct ckptd_conn) { .fd = -1 };
	*attach = (struct ckptd_message) { 0 };
	if (begin(session, err) == 0) {
		const struct ckptd_message attached = { .type = CKPTD_ATTACHED,
			.attached = { getpid(), session->hear ? ckptd_hear_port(session->hear) : 0 } };
		answer(session, &attached);
		return session;
	}
	ckptd_conn_refuse(&session->conn, err);
	release(session);
	return NULL;
}

void ckptd_session_step(struct ckptd_session *session)
{
	struct ckptd_news *news;
	hear_client(session);
	if (session->hear)
		ckptd_hear_step(session->hear);
	while ((news = ckptd_worker_news(session->worker))) {
		on_news(session, news);
		ckptd_news_free(news);
	}
	if (session->report)
		ckptd_report_step(session->report);
}

void ckptd_session_poll(const struct ckptd_session *session, struct ckptd_polls *polls)
{
	if (session->deaf)
		ckptd_polls_add(polls, session->conn.fd, POLLIN);
	else
		ckptd_polls_conn(polls, &session->conn);
	if (session->hear)
		ckptd_hear_poll(session->hear, polls);
	if (session->report)
		ckptd_report_poll(session->report, polls);
}

bool ckptd_session_connected(const struct ckptd_session *session)
{
	return session->conn.fd >= 0;
}

bool ckptd_session_busy(const struct ckptd_session *session)
{
	return ckptd_worker_busy(session->worker)
		|| (session->report && ckptd_report_busy(session->report));
}

bool ckptd_session_is(const struct ckptd_session *session, const struct ckptd_attach *attach)
{
	return attach_of(session)->part == attach->part
		&& strcmp(attach_of(session)->token, attach->token) == 0;
}

void ckptd_session_finish(struct ckptd_session *session, struct deadline deadline)
{
	double report = deadline_left(deadline);
	/* Messages that are still in the socket were handed over in time. */
	hear_client(session);
	session->finishing = true;
	ckptd_worker_hurry(session->worker, deadline);
	if (session->report)
		ckptd_report_hurry(session->report, report < REPORT_SECONDS ? report : REPORT_SECONDS);
}

void ckptd_session_describe(const struct ckptd_session *session, char *line, size_t size)
{
	const struct ckptd_attach *attach = attach_of(session);
	char newest[60] = "nothing is durable yet";
	if (session->newest >= 0)
		snprintf(newest, sizeof newest, "step %" PRId64 " is durable", session->newest);
	snprintf(line, size, "%.500s: attempt %d, part %d of %d, client %s, %s", attach->path,
		(int)attach->attempt, (int)attach->part + 1, (int)attach->parts,
		session->conn.fd >= 0 ? "connected" : "gone", newest);
}

void ckptd_session_list(const struct ckptd_session *session,
	void (*line)(void *arg, const char *text), void *arg)
{
	ckptd_worker_list(session->worker, line, arg);
	if (session->report)
		ckptd_report_list(session->report, line, arg);
}

void ckptd_session_close(struct ckptd_session *session)
{
	release(session);
}
