/* SPDX-License-Identifier: Apache-2.0 */
/* A queue of parts, and the connection over which they are reported. Part 0's service may be
 * replaced at any time: everything that is not decided is reported to the new one. */
#include "config.h"
#include "checkpoint/service/ckptd_report.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "checkpoint/protocol/ckptd_tcp.h"
#include "common/auto.h"
#include "common/log.h"

#define CONNECT_SECONDS 10.0
#define CLIENT_SECONDS 10.0 /* maximum time for which the client's buffer waits for part 0 */
#define FIRST_PAUSE 0.1
#define LONGEST_PAUSE 1.0

struct ckptd_report {
	const struct ckptd_attach *attach;
	struct ckptd_address address;
	double patience;
	struct ckptd_report_news news;
	struct ckptd_conn conn;
	bool connecting;
	/* until: when the connection attempt under way fails; next_try: when to make the next; both by
	 * clock_now(). pause: seconds before the attempt after that. */
	double until, next_try, pause;
	struct ckptd_told *first;
	bool hurried;
	struct err why; /* why the last connection ended */
};

struct ckptd_report *ckptd_report_open(const struct ckptd_attach *attach, double patience,
	const struct ckptd_report_news *news, struct err *err)
{
	struct sockaddr_storage ignored;
	socklen_t size;
	struct ckptd_report *report = calloc(1, sizeof *report);
	if (!report) {
		err_set(err, "service: no memory");
		return NULL;
	}
	*report = (struct ckptd_report) { .attach = attach,
		.patience = patience,
		.news = *news,
		.conn.fd = -1,
		.pause = FIRST_PAUSE };
	if (ckptd_address_parse(attach->first, &report->address, err) == 0
		&& ckptd_tcp_address(report->address.host, report->address.port, &ignored, &size, err) == 0)
		return report;
	free(report);
	return NULL;
}

static void free_told(struct ckptd_told *told)
{
	free(told->text);
	free(told);
}

/* ---- the connection ---- */

static void disconnect(struct ckptd_report *report)
{
	ckptd_conn_close(&report->conn);
	report->connecting = false;
	report->next_try = clock_now() + report->pause;
	report->pause = report->pause * 2 < LONGEST_PAUSE ? report->pause * 2 : LONGEST_PAUSE;
	for (struct ckptd_told **at = &report->first; *at;) {
		struct ckptd_told *told = *at;
		told->sent = false;
		if (!told->left) {
			at = &told->next;
			continue;
		}
		*at = told->next; /* a new service does not have the save that this would end */
		free_told(told);
	}
}

static int start_connecting(struct ckptd_report *report, struct err *err)
{
	struct sockaddr_storage address;
	socklen_t size;
	if (ckptd_tcp_address(report->address.host, report->address.port, &address, &size, err) < 0)
		return -1;
	int fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return err_fail(err, EXIT_LOST, "service: couldn't make a socket: %m");
	ckptd_conn_open(&report->conn, fd);
	ckptd_tcp_keep(fd);
	report->connecting = true;
	report->until = clock_now() + CONNECT_SECONDS;
	if (connect(fd, (struct sockaddr *)&address, size) < 0 && errno != EINPROGRESS)
		return err_fail(err, EXIT_LOST, "service: couldn't connect: %m");
	return 0;
}

/* 1 when connected, 0 when not yet, -1 when it failed. */
static int look_at_connecting(struct ckptd_report *report, struct err *err)
{
	struct sockaddr_storage peer;
	socklen_t size = sizeof peer, length = sizeof(int);
	int why = 0;
	if (getpeername(report->conn.fd, (struct sockaddr *)&peer, &size) == 0)
		return 1;
	getsockopt(report->conn.fd, SOL_SOCKET, SO_ERROR, &why, &length);
	if (why)
		return err_fail(err, EXIT_LOST, "service: couldn't connect: %s", strerror(why));
	return clock_now() < report->until
		? 0
		: err_fail(err, EXIT_LOST, "service: couldn't connect in time");
}

static int say_hello(struct ckptd_report *report, struct err *err)
{
	const struct ckptd_message hello = { .type = CKPTD_HELLO,
		.hello = { report->address.secret, report->attach->token, report->attach->part,
			report->attach->parts } };
	report->connecting = false;
	return ckptd_conn_send(&report->conn, &hello, NULL, 0, err);
}

static int send_parts(struct ckptd_report *report, struct err *err)
{
	for (struct ckptd_told *told = report->first; told; told = told->next) {
		const struct ckptd_message left = { .type = CKPTD_LEFT, .decided.step = told->result.step };
		const struct ckptd_message part = { .type = CKPTD_PART,
			.part = { told->result.step, told->text, told->text ? EXIT_OK : told->result.err.status,
				told->text ? NULL : told->result.err.text } };
		if (!told->sent
			&& ckptd_conn_send(&report->conn, told->left ? &left : &part, NULL, 0, err) < 0)
			return -1;
		told->sent = true;
	}
	return ckptd_conn_flush(&report->conn, err);
}

/* ---- reports ---- */

static void give_back(struct ckptd_report *report, struct ckptd_told *told)
{
	if (told->owed)
		report->news.taken(report->news.arg, told);
	told->owed = false;
}

int ckptd_report_tell(struct ckptd_report *report, const struct ckptd_told *told)
{
	struct ckptd_told *copy = malloc(sizeof *copy), **at;
	if (!copy)
		return -1;
	*copy = *told;
	copy->next = NULL;
	copy->since = clock_now();
	copy->until = copy->since + report->patience;
	for (at = &report->first; *at; at = &(*at)->next)
		;
	*at = copy;
	return 0;
}

static void drop(struct ckptd_report *report, struct ckptd_told **at, bool committed)
{
	struct ckptd_told *told = *at;
	give_back(report, told);
	if (!told->left)
		report->news.decided(report->news.arg, told->result.step, committed);
	*at = told->next;
	free_told(told);
}

/* Handles one message from part 0. */
static int hear(struct ckptd_report *report, const struct ckptd_message *message, struct err *err)
{
	if (message->type == CKPTD_REFUSED)
		return err_fail(err, message->refused.status, "refused: %s", message->refused.text);
	if (message->type != CKPTD_PART_TAKEN && message->type != CKPTD_DECIDED)
		return err_fail(err, EXIT_DATA, "protocol: %s came where PART_TAKEN or DECIDED should",
			ckptd_type_name(message->type));
	for (struct ckptd_told **at = &report->first; *at; at = &(*at)->next) {
		if ((*at)->result.step != message->decided.step)
			continue;
		/* When part 0's service has descriptors for some parts only, those that it has already
		 * heard should come back slowly, so only news resets the pause. */
		if (!(*at)->taken)
			report->pause = FIRST_PAUSE;
		(*at)->taken = true;
		give_back(report, *at);
		if (message->type == CKPTD_DECIDED || (*at)->left)
			drop(report, at, message->decided.committed);
		break;
	}
	return 0;
}

static int talk(struct ckptd_report *report, struct err *err)
{
	struct ckptd_message message;
	int rc;
	if (report->connecting) {
		rc = look_at_connecting(report, err);
		if (rc <= 0)
			return rc;
		if (say_hello(report, err) < 0)
			return -1;
	}
	if (send_parts(report, err) < 0)
		return -1;
	while ((rc = ckptd_conn_receive(&report->conn, &message, err)) > 0) {
		rc = hear(report, &message, err);
		ckptd_message_release(&message);
		if (rc < 0)
			break;
	}
	return rc;
}

/* Gives back buffers that the client has waited for long enough, and gives up parts whose time is
 * over. */
static void look_at_time(struct ckptd_report *report, double now)
{
	for (struct ckptd_told **at = &report->first; *at;) {
		struct ckptd_told *told = *at;
		if (now - told->since > CLIENT_SECONDS)
			give_back(report, told);
		if (now < told->until) {
			at = &told->next;
			continue;
		}
		if (!told->taken && !told->left)
			log_error("checkpoint: step %" PRId64
					  " of %s: no word of part %d of %d reached part 0's service at %s port %d: %s",
				told->result.step, report->attach->path, (int)report->attach->part + 1,
				(int)report->attach->parts, report->address.host, report->address.port,
				report->why.text);
		drop(report, at, false);
	}
}

void ckptd_report_step(struct ckptd_report *report)
{
	double now = clock_now();
	struct err err;
	int rc = 0;
	if (!report->hurried)
		look_at_time(report, now);
	if (report->conn.fd < 0 && report->first && now >= report->next_try)
		rc = start_connecting(report, &err);
	if (rc == 0 && report->conn.fd >= 0)
		rc = talk(report, &err);
	if (rc < 0) {
		report->why = err;
		disconnect(report);
	}
}

void ckptd_report_poll(const struct ckptd_report *report, struct ckptd_polls *polls)
{
	double now = clock_now();
	if (report->conn.fd >= 0)
		ckptd_polls_add(polls, report->conn.fd,
			(short)(report->connecting ? POLLOUT : ckptd_conn_events(&report->conn)));
	else if (report->first)
		ckptd_polls_within(polls, report->next_try - now);
	for (const struct ckptd_told *told = report->first; told; told = told->next) {
		if (told->owed)
			ckptd_polls_within(polls, told->since + CLIENT_SECONDS - now);
		if (now < told->until)
			ckptd_polls_within(polls, told->until - now);
	}
}

bool ckptd_report_busy(const struct ckptd_report *report)
{
	const struct ckptd_told *told = report->first;
	double now = clock_now();
	while (told && report->hurried
		&& (told->taken || (!told->text && !told->left) || now >= told->until))
		told = told->next;
	return told;
}

void ckptd_report_hurry(struct ckptd_report *report, double seconds)
{
	double until = clock_now() + seconds;
	report->hurried = true;
	if (report->patience > seconds)
		report->patience = seconds;
	for (struct ckptd_told *told = report->first; told; told = told->next)
		if (told->until > until)
			told->until = until;
}

void ckptd_report_left(struct ckptd_report *report, int64_t step, double seconds)
{
	ckptd_report_hurry(report, seconds);
	ckptd_report_tell(report,
		&(struct ckptd_told) { .result.step = step, .buffer = -1, .left = true });
}

void ckptd_report_list(const struct ckptd_report *report, void (*line)(void *arg, const char *text),
	void *arg)
{
	struct err text;
	for (const struct ckptd_told *told = report->first; told; told = told->next) {
		if (told->taken || !told->text)
			continue;
		err_set(&text,
			"step %" PRId64 " of %s: part %d of %d is durable, but part 0's service at %s port %d "
			"took no word of it: %s",
			told->result.step, report->attach->path, (int)report->attach->part + 1,
			(int)report->attach->parts, report->address.host, report->address.port,
			report->why.text[0] ? report->why.text : "not yet");
		line(arg, text.text);
	}
}

void ckptd_report_close(struct ckptd_report *report)
{
	if (!report)
		return;
	while (report->first) {
		struct ckptd_told *told = report->first;
		report->first = told->next;
		free_told(told);
	}
	ckptd_conn_close(&report->conn);
	free(report);
}
