/* SPDX-License-Identifier: Apache-2.0 */
/* The service's loop waits nowhere but in its poll(): a disk that hangs holds up its worker only,
 * and the epilog still gets its answer. */
#include "config.h"
#include "checkpoint/service/ckptd_server.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "checkpoint/protocol/ckptd_polls.h"
#include "checkpoint/service/ckptd_alive.h"
#include "checkpoint/service/ckptd_session.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/log.h"

#define VISITORS_MAX 64 /* connections that have not attached */
#define SESSIONS_MAX 128
#define LOST_MAX 100         /* lines that are kept */
#define VISITOR_SECONDS 30.0 /* maximum silence of a visitor */
#define LOOK_SECONDS 2.0     /* between looks at the socket's folder */
#define GOODBYE_SECONDS 5.0  /* maximum wait until the answer to FINISH is sent */
/* Seconds between log lines about other users, whom nothing keeps from connecting to the abstract
 * name. */
#define STRANGER_SECONDS 60.0

/* A connection that has not attached: a future client, or one that asks a question. */
struct visitor {
	struct visitor *next;
	struct ckptd_conn conn;
	double since;
	bool waits; /* for FINISHED */
};

struct session {
	struct session *next;
	struct ckptd_session *session;
};

struct lines {
	char *lines[LOST_MAX];
	size_t count;
};

struct server {
	const struct ckptd_server_plan *plan;
	struct ckptd_service service;
	/* Of the plan's listening socket: at its path, at its abstract name. */
	struct acceptor acceptors[2];
	struct ckptd_polls polls;
	struct visitor *visitors;
	struct session *sessions;
	size_t visitor_count, session_count;
	struct lines lost;
	struct ckptd_alive alive;
	bool finishing;
	struct deadline deadline; /* FINISH's */
	double next_look, next_stranger;
};

/* ---- lines ---- */

static void add_line(void *arg, const char *text)
{
	struct lines *lines = arg;
	char *copy = lines->count < LOST_MAX ? strdup(text) : NULL;
	if (copy)
		lines->lines[lines->count++] = copy;
}

static void free_lines(struct lines *lines)
{
	while (lines->count > 0)
		free(lines->lines[--lines->count]);
}

/* ---- visitors ---- */

static void add_visitor(struct server *server, int fd)
{
	struct visitor *visitor = calloc(1, sizeof *visitor);
	if (!visitor) {
		close(fd);
		return;
	}
	ckptd_conn_open(&visitor->conn, fd);
	visitor->since = clock_now();
	visitor->next = server->visitors;
	server->visitors = visitor;
	server->visitor_count++;
}

static void refuse_stranger(struct server *server, const struct err *why)
{
	if (clock_now() < server->next_stranger)
		return;
	server->next_stranger = clock_now() + STRANGER_SECONDS;
	log_warn("service: a connection is refused: %s", why->text);
}

/* Accepts a limited number at a time: a process that connects again and again must not keep the
 * others from being served. */
static void accept_visitors(struct server *server, struct acceptor *acceptor)
{
	struct err err;
	pid_t pid;
	for (int i = 0; i < VISITORS_MAX && server->visitor_count < VISITORS_MAX; i++) {
		int fd = acceptor_take(acceptor, NULL, NULL);
		if (fd < 0)
			return;
		if (ckptd_socket_check_peer(fd, &pid, &err) == 0) {
			add_visitor(server, fd);
			continue;
		}
		refuse_stranger(server, &err);
		close(fd);
	}
}

static int say_state(struct server *server, struct visitor *visitor, struct err *err)
{
	struct lines lines = { .count = 0 };
	char line[1200];
	for (struct session *at = server->sessions; at; at = at->next) {
		ckptd_session_describe(at->session, line, sizeof line);
		add_line(&lines, line);
		ckptd_session_list(at->session, add_line, &lines);
	}
	for (size_t i = 0; i < server->lost.count; i++)
		add_line(&lines, server->lost.lines[i]);
	const struct ckptd_message state = { .type = CKPTD_STATE,
		.state = { getpid(), (int64_t)server->session_count, server->plan->job,
			(const char **)lines.lines, lines.count } };
	int rc = ckptd_conn_send(&visitor->conn, &state, NULL, 0, err);
	free_lines(&lines);
	return rc;
}

static void start_finishing(struct server *server, struct visitor *visitor, double seconds)
{
	struct deadline deadline = deadline_in(seconds);
	visitor->waits = true;
	if (server->finishing && server->deadline.at <= deadline.at)
		return;
	log_info("service: told to end within %.0f s", seconds);
	server->finishing = true;
	server->deadline = deadline;
	for (struct session *at = server->sessions; at; at = at->next)
		ckptd_session_finish(at->session, deadline);
}

/* Refuses a client while an earlier one of the same part still has saves under way: both would
 * write the same files. */
static int check_attach(const struct server *server, const struct ckptd_attach *attach,
	struct err *err)
{
	if (server->finishing)
		return err_fail(err, EXIT_LOST, "service: it was told to end");
	if (server->session_count >= SESSIONS_MAX)
		return err_fail(err, EXIT_LOST, "service: it has %d clients already", SESSIONS_MAX);
	for (const struct session *at = server->sessions; at; at = at->next)
		if (ckptd_session_is(at->session, attach))
			return err_fail(err, EXIT_LOST,
				"service: what an earlier client of part %d of this attempt handed over is not "
				"over",
				(int)attach->part + 1);
	return 0;
}

/* Moves the connection from the visitor to a session. */
static int attach(struct server *server, struct visitor *visitor, struct ckptd_message *message,
	struct err *err)
{
	if (check_attach(server, &message->attach, err) < 0)
		return -1;
	struct session *entry = calloc(1, sizeof *entry);
	if (!entry)
		return err_fail(err, EXIT_LOST, "service: no memory");
	entry->session = ckptd_session_open(&server->service, &visitor->conn, message, err);
	if (!entry->session) {
		log_warn("service: a client is refused: %s", err->text);
		free(entry);
		return 0;
	}
	entry->next = server->sessions;
	server->sessions = entry;
	server->session_count++;
	return 0;
}

/* Returns -1 when the visitor must be sent away. */
static int serve(struct server *server, struct visitor *visitor, struct ckptd_message *message,
	struct err *err)
{
	switch (message->type) {
	case CKPTD_ATTACH: return attach(server, visitor, message, err);
	case CKPTD_STATUS: return say_state(server, visitor, err);
	case CKPTD_FINISH: start_finishing(server, visitor, (double)message->finish.seconds); return 0;
	default:
		return err_fail(err, EXIT_DATA, "protocol: %s came where ATTACH, STATUS or FINISH should",
			ckptd_type_name(message->type));
	}
}

static int hear_visitor(struct server *server, struct visitor *visitor, struct err *err)
{
	struct ckptd_message message;
	int rc = 0;
	if (ckptd_conn_flush(&visitor->conn, err) < 0)
		return -1;
	while (visitor->conn.fd >= 0 && (rc = ckptd_conn_receive(&visitor->conn, &message, err)) > 0) {
		rc = serve(server, visitor, &message, err);
		ckptd_message_release(&message);
		if (rc < 0)
			return -1;
	}
	if (rc == 0 && !visitor->waits && server->plan->listening
		&& clock_now() - visitor->since > VISITOR_SECONDS)
		return err_fail(err, EXIT_LOST, "service: no message came within %g s", VISITOR_SECONDS);
	return rc;
}

/* Sends the reason, and logs it unless the connection was just lost. */
static void send_away(struct visitor *visitor, const struct err *why)
{
	if (why->status != EXIT_LOST)
		log_warn("service: a connection is refused: %s", why->text);
	ckptd_conn_refuse(&visitor->conn, why);
	ckptd_conn_close(&visitor->conn);
}

static void step_visitors(struct server *server)
{
	struct err err;
	for (struct visitor **at = &server->visitors; *at;) {
		struct visitor *visitor = *at;
		if (hear_visitor(server, visitor, &err) < 0)
			send_away(visitor, &err);
		if (visitor->conn.fd >= 0) {
			at = &visitor->next;
			continue;
		}
		*at = visitor->next;
		server->visitor_count--;
		free(visitor);
	}
}

/* ---- sessions ---- */

/* Logs a part that part 0's service has not noted. */
static void log_line(void *arg, const char *text)
{
	(void)arg;
	log_warn("checkpoint: %s; the next attempt uses it if all parts are there", text);
}

static void step_sessions(struct server *server)
{
	for (struct session **at = &server->sessions; *at;) {
		struct session *entry = *at;
		ckptd_session_step(entry->session);
		if (ckptd_session_connected(entry->session) || ckptd_session_busy(entry->session)) {
			at = &entry->next;
			continue;
		}
		ckptd_session_list(entry->session, log_line, NULL);
		ckptd_session_close(entry->session);
		*at = entry->next;
		server->session_count--;
		free(entry);
	}
}

static bool is_busy(const struct server *server)
{
	for (const struct session *at = server->sessions; at; at = at->next)
		if (ckptd_session_busy(at->session))
			return true;
	return false;
}

/* ---- the end ---- */

/* Tells the visitors that wait what was lost. */
static void say_finished(struct server *server)
{
	struct deadline deadline = deadline_in(GOODBYE_SECONDS);
	struct lines lines = { .count = 0 };
	for (size_t i = 0; i < server->lost.count; i++)
		add_line(&lines, server->lost.lines[i]);
	for (struct session *at = server->sessions; at; at = at->next)
		ckptd_session_list(at->session, add_line, &lines);
	const struct ckptd_message finished = { .type = CKPTD_FINISHED,
		.finished = { .lines = (const char **)lines.lines, .count = lines.count } };
	for (size_t i = 0; i < lines.count; i++)
		log_error("service: lost: %s", lines.lines[i]);
	for (struct visitor *at = server->visitors; at; at = at->next)
		if (at->waits && ckptd_conn_send(&at->conn, &finished, NULL, 0, NULL) == 0)
			while (at->conn.first && deadline_sleep(deadline, 0.01)
				&& ckptd_conn_flush(&at->conn, NULL) == 0)
				;
	free_lines(&lines);
}

/* Whether clients can no longer find the service, or its job is gone. */
static bool is_forsaken(struct server *server)
{
	bool idle = server->session_count == 0 && server->visitor_count == 0;
	double now = clock_now();
	if (ckptd_alive_step(&server->alive, idle)) {
		log_info("service: the job is gone");
		return true;
	}
	if (!idle || now < server->next_look)
		return false;
	server->next_look = now + LOOK_SECONDS;
	if (ckptd_socket_is_there(server->plan->listening))
		return false;
	log_info("service: its socket was removed");
	return true;
}

static bool is_over(struct server *server)
{
	if (server->finishing && (!is_busy(server) || deadline_passed(server->deadline))) {
		say_finished(server);
		return true;
	}
	if (!server->plan->listening)
		return server->session_count == 0 && server->visitor_count == 0;
	return is_forsaken(server);
}

/* ---- the loop ---- */

static void wait_for_something(struct server *server)
{
	struct ckptd_polls *polls = &server->polls;
	eventfd_t ignored;
	polls->count = 0;
	polls->seconds = LOOK_SECONDS;
	ckptd_polls_add(polls, server->service.wake, POLLIN);
	for (size_t i = 0; i < 2 && server->visitor_count < VISITORS_MAX; i++)
		ckptd_polls_acceptor(polls, &server->acceptors[i]);
	for (struct visitor *at = server->visitors; at; at = at->next)
		ckptd_polls_conn(polls, &at->conn);
	for (struct session *at = server->sessions; at; at = at->next)
		ckptd_session_poll(at->session, polls);
	ckptd_alive_poll(&server->alive, polls);
	if (server->finishing)
		ckptd_polls_within(polls, deadline_left(server->deadline));
	ckptd_polls_wait(polls);
	eventfd_read(server->service.wake, &ignored);
}

/* Sessions still at work at FINISH's deadline are not freed; the end of the process ends their
 * threads. */
static void tear_down(struct server *server)
{
	struct visitor *visitor;
	while ((visitor = server->visitors)) {
		server->visitors = visitor->next;
		ckptd_conn_close(&visitor->conn);
		free(visitor);
	}
	for (struct session *entry = server->sessions, *next; entry; entry = next) {
		next = entry->next;
		if (!ckptd_session_busy(entry->session)) {
			ckptd_session_close(entry->session);
			free(entry);
		}
	}
	free_lines(&server->lost);
	free(server->polls.fds);
}

int ckptd_server_run(const struct ckptd_server_plan *plan, struct err *err)
{
	/* Static, since a worker that hangs may still use it when this returns. */
	static struct server server;
	const struct ckptd_socket *listening = plan->listening;
	server = (struct server) { .plan = plan,
		.acceptors = { { .fd = listening ? listening->fd : -1 },
			{ .fd = listening ? listening->abstract : -1 } },
		.alive = { .command = plan->alive, .every = plan->alive_every } };
	server.service = (struct ckptd_service) { .patience = plan->patience,
		.quiet = !plan->listening,
		.lost = add_line,
		.arg = &server.lost,
		.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) };
	if (server.service.wake < 0)
		return err_fail(err, io_status(errno), "service: couldn't make an eventfd: %m");
	if (plan->client >= 0)
		add_visitor(&server, plan->client);
	do {
		wait_for_something(&server);
		accept_visitors(&server, &server.acceptors[0]);
		accept_visitors(&server, &server.acceptors[1]);
		step_visitors(&server);
		step_sessions(&server);
	} while (!is_over(&server));
	tear_down(&server);
	return 0;
}
