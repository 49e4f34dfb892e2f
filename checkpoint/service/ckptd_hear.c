/* SPDX-License-Identifier: Apache-2.0 */
/* A stranger is a connection that has not given the secret. It may send only one small frame, it is
 * dropped after ten seconds, and of many at once the oldest is dropped. When descriptors are
 * scarce, a part's connection may be dropped too: its service connects again and reports every part
 * that is not decided. */
#include "config.h"
#include "checkpoint/service/ckptd_hear.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "checkpoint/protocol/ckptd_tcp.h"
#include "checkpoint/save/ckpt_part.h"
#include "common/auto.h"
#include "common/descriptors.h"
#include "common/log.h"

#define STRANGERS_MAX 64 /* connections that have not given the secret */
#define STRANGER_SECONDS 10.0
#define REMEMBERED 16 /* committed steps whose parts may be reported again */

struct peer {
	struct peer *next;
	struct ckptd_conn conn;
	int part;     /* -1: a stranger */
	double since; /* time of its arrival or last message */
};

struct ckptd_hear {
	const struct ckptd_attach *attach;
	struct ckptd_hear_news news;
	struct acceptor acceptor;
	int port;
	struct peer *peers; /* newest first */
	size_t peer_count, strangers;
	bool shares; /* it has been logged that the parts share the descriptors */
	int64_t committed[REMEMBERED];
	size_t next_committed;
};

/* ---- listening ---- */

static int listen_on(struct ckptd_hear *hear, int port, struct err *err)
{
	struct sockaddr_storage address;
	socklen_t size;
	const int on = 1;
	if (ckptd_tcp_address(hear->attach->host, port, &address, &size, err) < 0)
		return -1;
	AUTO_CLOSE int fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd >= 0)
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, size) < 0 || listen(fd, SOMAXCONN) < 0)
		return err_fail(err, EXIT_LOST, "service: couldn't listen on %s port %d: %m",
			hear->attach->host, port);
	if (getsockname(fd, (struct sockaddr *)&address, &size) < 0)
		return err_set(err, "service: couldn't learn a port: %m");
	hear->port = ntohs(address.ss_family == AF_INET ? ((struct sockaddr_in *)&address)->sin_port
													: ((struct sockaddr_in6 *)&address)->sin6_port);
	hear->acceptor.fd = AUTO_TAKE_FD(fd);
	return 0;
}

struct ckptd_hear *ckptd_hear_open(const struct ckptd_attach *attach,
	const struct ckptd_hear_news *news, struct err *err)
{
	struct ckptd_hear *hear = calloc(1, sizeof *hear);
	if (!hear) {
		err_set(err, "service: no memory");
		return NULL;
	}
	*hear = (struct ckptd_hear) { .attach = attach, .news = *news, .acceptor.fd = -1 };
	memset(hear->committed, 0xff, sizeof hear->committed);
	int rc = listen_on(hear, (int)attach->port, err);
	if (rc < 0 && attach->port > 0 && errno == EADDRINUSE) {
		log_error("%s; the other parts' services won't find this one", err->text);
		rc = listen_on(hear, 0, err);
	}
	if (rc == 0)
		return hear;
	free(hear);
	return NULL;
}

int ckptd_hear_port(const struct ckptd_hear *hear)
{
	return hear->port;
}

/* ---- messages ---- */

/* Takes the same time however much of the token is right, so that it can't be guessed piece by
 * piece. */
static bool same_token(const char *a, const char *b)
{
	unsigned char differ = 0;
	for (int i = 0; i < 32; i++)
		differ |= (unsigned char)(a[i] ^ b[i]);
	return differ == 0;
}

static int hear_hello(struct ckptd_hear *hear, struct peer *peer,
	const struct ckptd_message *message, struct err *err)
{
	const struct ckptd_hello *hello = &message->hello;
	if (message->type != CKPTD_HELLO || !same_token(hello->secret, hear->attach->secret))
		return err_fail(err, EXIT_USAGE, "service: who connects here has to say the secret first");
	if (!same_token(hello->token, hear->attach->token) || hello->parts != hear->attach->parts)
		return err_fail(err, EXIT_DATA,
			"service: part %lld of %lld is not of this attempt's saves of %lld parts",
			(long long)hello->part + 1, (long long)hello->parts, (long long)hear->attach->parts);
	peer->part = (int)hello->part;
	peer->conn.limit = 0;
	ckptd_tcp_keep(peer->conn.fd);
	hear->strangers--;
	return 0;
}

static bool is_committed(const struct ckptd_hear *hear, int64_t step)
{
	for (size_t i = 0; i < REMEMBERED; i++)
		if (hear->committed[i] == step)
			return true;
	return false;
}

/* Passes a part on; if its text is wrong, that is passed on as the part's fault. */
static int pass_on(struct ckptd_hear *hear, const struct peer *peer, const struct ckptd_part *told,
	struct err *err)
{
	const struct ckptd_attach *attach = hear->attach;
	struct err fault = { 0 };
	char *text = NULL;
	size_t size = told->text ? strlen(told->text) : 0;
	if (!told->text)
		err_fail(&fault, (enum exit_status)told->status, "%s", told->fault);
	else if (ckpt_part_check(told->text, size, told->step, attach->token, peer->part,
				 (int)attach->parts, &fault)
		== 0)
		text = strdup(told->text);
	if (!text && !fault.text[0])
		return err_fail(err, EXIT_LOST, "service: no memory");
	if (!text)
		err_prefix(&fault, "part %d of %d", peer->part + 1, (int)attach->parts);
	return hear->news.part(hear->news.arg, told->step, peer->part, text, size, &fault) == 0
		? 0
		: err_fail(err, EXIT_LOST, "service: too many saves are under way");
}

static int hear_part(struct ckptd_hear *hear, struct peer *peer,
	const struct ckptd_message *message, struct err *err)
{
	struct ckptd_message answer = { .type = CKPTD_PART_TAKEN, .decided.step = message->part.step };
	bool committed = is_committed(hear, message->part.step);
	if (!committed && pass_on(hear, peer, &message->part, err) < 0)
		return -1;
	if (ckptd_conn_send(&peer->conn, &answer, NULL, 0, err) < 0)
		return -1;
	answer.type = CKPTD_DECIDED;
	answer.decided.committed = true;
	return committed ? ckptd_conn_send(&peer->conn, &answer, NULL, 0, err) : 0;
}

static int hear_left(struct ckptd_hear *hear, struct peer *peer,
	const struct ckptd_message *message, struct err *err)
{
	const struct ckptd_message answer = { .type = CKPTD_PART_TAKEN,
		.decided.step = message->decided.step };
	hear->news.left(hear->news.arg, message->decided.step, peer->part);
	return ckptd_conn_send(&peer->conn, &answer, NULL, 0, err);
}

static int hear_message(struct ckptd_hear *hear, struct peer *peer,
	const struct ckptd_message *message, struct err *err)
{
	if (peer->part < 0)
		return hear_hello(hear, peer, message, err);
	peer->since = clock_now();
	if (message->type == CKPTD_PART)
		return hear_part(hear, peer, message, err);
	if (message->type == CKPTD_LEFT)
		return hear_left(hear, peer, message, err);
	return err_fail(err, EXIT_DATA, "protocol: %s came where PART or LEFT should",
		ckptd_type_name(message->type));
}

/* Returns -1 when the connection must be closed. */
static int listen_to(struct ckptd_hear *hear, struct peer *peer, struct err *err)
{
	struct ckptd_message message;
	int rc;
	if (ckptd_conn_flush(&peer->conn, err) < 0)
		return -1;
	while ((rc = ckptd_conn_receive(&peer->conn, &message, err)) > 0) {
		rc = hear_message(hear, peer, &message, err);
		ckptd_message_release(&message);
		if (rc < 0)
			break;
	}
	if (rc == 0 && peer->part < 0 && clock_now() - peer->since > STRANGER_SECONDS)
		return err_fail(err, EXIT_LOST, "service: no message came within %g s", STRANGER_SECONDS);
	return rc;
}

/* Sends the reason, unless the connection just ended. Logs it only for parts, not for strangers. */
static void refuse(struct peer *peer, const struct err *why)
{
	if (peer->part >= 0 && why->status != EXIT_LOST)
		log_warn("service: part %d: %s", peer->part + 1, why->text);
	if (why->status != EXIT_LOST)
		ckptd_conn_refuse(&peer->conn, why);
}

static void drop(struct ckptd_hear *hear, struct peer **at)
{
	struct peer *peer = *at;
	*at = peer->next;
	hear->peer_count--;
	hear->strangers -= peer->part < 0;
	ckptd_conn_close(&peer->conn);
	free(peer);
}

/* False when the connection was closed. */
static bool tend(struct ckptd_hear *hear, struct peer **at)
{
	struct err why;
	if (listen_to(hear, *at, &why) == 0)
		return true;
	refuse(*at, &why);
	drop(hear, at);
	return false;
}

/* ---- new connections ---- */

/* Strangers are dropped before parts; among equals, the one that has been silent longest. */
static bool is_missed_less(const struct peer *peer, const struct peer *than)
{
	return !than
		|| ((peer->part < 0) != (than->part < 0) ? peer->part < 0 : peer->since < than->since);
}

/* Whether a message of a part is under way; then another connection is dropped. */
static bool is_at_work(const struct peer *peer)
{
	char byte;
	return peer->part >= 0
		&& (peer->conn.have > 0 || peer->conn.first
			|| recv(peer->conn.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0);
}

/* The connection to drop; NULL: all have messages under way. */
static struct peer **find_least_missed(struct ckptd_hear *hear)
{
	double now = clock_now();
	for (;;) {
		struct peer **least = NULL;
		for (struct peer **at = &hear->peers; *at; at = &(*at)->next)
			if ((*at)->since < now && is_missed_less(*at, least ? *least : NULL))
				least = at;
		if (!least || !is_at_work(*least))
			return least;
		(*least)->since = now;
	}
}

static bool make_room(void *arg)
{
	struct ckptd_hear *hear = arg;
	struct peer **at = find_least_missed(hear);
	if (at)
		drop(hear, at);
	return at;
}

/* Whether a connection has to be dropped to make room for a new one. */
static bool is_full(struct ckptd_hear *hear)
{
	size_t most = descriptors_for_connections();
	if (hear->peer_count < most)
		return hear->strangers == STRANGERS_MAX;
	if (!hear->shares)
		log_warn("service: couldn't keep the connections of all parts: there are files for %zu: "
				 "raise the hard limit of open files (LimitNOFILE of slurmd)",
			most);
	return hear->shares = true;
}

/* A part has mostly sent its first message already: process it now, before the next stranger can
 * displace it. */
static bool accept_one(struct ckptd_hear *hear)
{
	int fd = acceptor_take(&hear->acceptor, make_room, hear);
	struct peer *peer = fd >= 0 ? calloc(1, sizeof *peer) : NULL;
	if (!peer) {
		if (fd >= 0)
			close(fd);
		return false;
	}
	if (is_full(hear))
		make_room(hear);
	ckptd_conn_open(&peer->conn, fd);
	peer->conn.limit = CKPTD_HELLO_MAX;
	peer->part = -1;
	peer->since = clock_now();
	peer->next = hear->peers;
	hear->peers = peer;
	hear->peer_count++;
	hear->strangers++;
	tend(hear, &hear->peers);
	return true;
}

/* ---- calls of the session ---- */

void ckptd_hear_step(struct ckptd_hear *hear)
{
	for (int i = 0; i < STRANGERS_MAX && accept_one(hear); i++)
		;
	for (struct peer **at = &hear->peers; *at;)
		if (tend(hear, at))
			at = &(*at)->next;
}

void ckptd_hear_poll(const struct ckptd_hear *hear, struct ckptd_polls *polls)
{
	ckptd_polls_acceptor(polls, &hear->acceptor);
	if (hear->strangers > 0)
		ckptd_polls_within(polls, STRANGER_SECONDS);
	for (const struct peer *peer = hear->peers; peer; peer = peer->next)
		ckptd_polls_conn(polls, &peer->conn);
}

void ckptd_hear_decided(struct ckptd_hear *hear, int64_t step, bool committed)
{
	const struct ckptd_message message = { .type = CKPTD_DECIDED, .decided = { step, committed } };
	if (committed)
		hear->committed[hear->next_committed++ % REMEMBERED] = step;
	/* A broken connection is noticed when it is read. */
	for (struct peer *peer = hear->peers; peer; peer = peer->next)
		if (peer->part >= 0)
			ckptd_conn_send(&peer->conn, &message, NULL, 0, NULL);
}

void ckptd_hear_close(struct ckptd_hear *hear)
{
	if (!hear)
		return;
	while (hear->peers)
		drop(hear, &hear->peers);
	close(hear->acceptor.fd);
	free(hear);
}
