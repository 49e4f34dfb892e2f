/* SPDX-License-Identifier: Apache-2.0 */
/* The client side of PMI 2.0. The server is part of Slurm and trusted, but its messages are
 * checked: one that is too long, cut off or out of order is an error. */
#include "config.h"

#include "launch/pmi2_wire.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "common/auto.h"
#include "common/number.h"

#define HEAD_SIZE 6
#define LENGTH_MAX (1 << 18) /* a mapping of many thousands of nodes */
#define HELLO "cmd=init pmi_version=2 pmi_subversion=0\n"
#define HELLO_BACK "cmd=response_to_init "

static int lose(struct pmi2_wire *wire, struct err *err, const char *verb, const char *reason)
{
	wire->lost = true;
	return err_fail(err, EXIT_LOST, "rendezvous: couldn't %s the PMI2 server of this node: %s",
		verb, reason);
}

/* 1 when the socket is ready, 0 when the deadline has passed, -1 on error. */
static int await(const struct pmi2_wire *wire, short events, struct deadline deadline)
{
	struct pollfd ready = { .fd = wire->fd, .events = events };
	for (;;) {
		double left = deadline_left(deadline) * 1000 + 1;
		int rc = poll(&ready, 1, left < INT_MAX ? (int)left : INT_MAX);
		if (rc > 0)
			return 1;
		if (rc < 0 && errno != EINTR)
			return -1;
		if (deadline_passed(deadline))
			return 0;
	}
}

/* Fills `to` up to `want` bytes; *got continues across calls. Returns as pmi2_wire_fence does. A
 * closed socket is an error. */
static int receive(struct pmi2_wire *wire, char *to, size_t want, size_t *got,
	struct deadline deadline)
{
	while (*got < want) {
		ssize_t n = recv(wire->fd, to + *got, want - *got, MSG_DONTWAIT);
		if (n == 0)
			errno = ECONNRESET;
		if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
			return -1;
		if (n > 0)
			*got += (size_t)n;
		else if (errno == EAGAIN) {
			int rc = await(wire, POLLIN, deadline);
			if (rc <= 0)
				return rc;
		}
	}
	return 1;
}

static int transmit(struct pmi2_wire *wire, const char *from, size_t size, struct deadline deadline,
	struct err *err)
{
	if (wire->lost)
		return lose(wire, err, "ask", "the connection was lost before");
	while (size > 0) {
		ssize_t n = send(wire->fd, from, size, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0 && errno != EAGAIN && errno != EINTR)
			return lose(wire, err, "ask", strerror(errno));
		if (n < 0 && errno == EAGAIN && await(wire, POLLOUT, deadline) <= 0)
			return lose(wire, err, "ask", "it takes nothing any more");
		if (n > 0) {
			from += n;
			size -= (size_t)n;
		}
	}
	return 0;
}

/* ---- messages ---- */

/* Digits, then blanks. */
static long read_length(const char *head)
{
	size_t digits = strspn(head, "0123456789");
	if (digits == 0 || strspn(head + digits, " ") != HEAD_SIZE - digits)
		return -1;
	return atol(head);
}

static bool is_well_formed(const struct pmi2_wire *wire)
{
	return strlen(wire->body) == wire->length && wire->length > 4
		&& strncmp(wire->body, "cmd=", 4) == 0 && wire->body[wire->length - 1] == ';';
}

static int begin_body(struct pmi2_wire *wire, struct err *err)
{
	long length = read_length(wire->head);
	if (length < 0 || length > LENGTH_MAX)
		return lose(wire, err, "understand", "a message has no length, or is too long");
	wire->body = malloc((size_t)length + 1);
	if (!wire->body)
		return lose(wire, err, "understand", "no memory");
	wire->length = (size_t)length;
	wire->body[length] = '\0';
	return 0;
}

/* Waits for the rest of the next message. Returns as pmi2_wire_fence does. */
static int next_message(struct pmi2_wire *wire, struct deadline deadline, struct err *err)
{
	if (wire->lost)
		return lose(wire, err, "hear", "the connection was lost before");
	if (wire->body && wire->filled == HEAD_SIZE + wire->length)
		pmi2_wire_clear(wire);
	if (!wire->body) {
		int rc = receive(wire, wire->head, HEAD_SIZE, &wire->filled, deadline);
		if (rc <= 0)
			return rc < 0 ? lose(wire, err, "hear", strerror(errno)) : 0;
		if (begin_body(wire, err) < 0)
			return -1;
	}
	size_t got = wire->filled - HEAD_SIZE;
	int rc = receive(wire, wire->body, wire->length, &got, deadline);
	wire->filled = HEAD_SIZE + got;
	if (rc < 0)
		return lose(wire, err, "hear", strerror(errno));
	if (rc > 0 && !is_well_formed(wire))
		return lose(wire, err, "understand", "a message is no command");
	return rc;
}

const char *pmi2_wire_field(const struct pmi2_wire *wire, const char *name, size_t *size)
{
	size_t length = strlen(name);
	for (const char *at = wire->body ? wire->body : ""; *at;
		 at += strcspn(at, ";"), at += *at == ';')
		if (strncmp(at, name, length) == 0 && at[length] == '=') {
			*size = strcspn(at + length + 1, ";");
			return at + length + 1;
		}
	return NULL;
}

static bool field_is(const struct pmi2_wire *wire, const char *name, const char *value)
{
	size_t size, length = strlen(value);
	const char *found = pmi2_wire_field(wire, name, &size);
	return found && size == length && memcmp(found, value, length) == 0;
}

char *pmi2_wire_text(const struct pmi2_wire *wire, const char *name)
{
	size_t size;
	const char *value =
		field_is(wire, "found", "FALSE") ? NULL : pmi2_wire_field(wire, name, &size);
	return value ? strndup(value, size) : NULL;
}

long pmi2_wire_number(const struct pmi2_wire *wire, const char *name, long most)
{
	AUTO_FREE char *text = pmi2_wire_text(wire, name);
	int64_t value;
	return text && number_whole(text, 0, most, &value) ? (long)value : -1;
}

void pmi2_wire_clear(struct pmi2_wire *wire)
{
	free(wire->body);
	wire->body = NULL;
	wire->filled = 0;
	memset(wire->head, 0, sizeof wire->head);
}

/* ---- the dialogue ---- */

/* The server has finalized an earlier program of this task: it has closed the socket, or answers
 * differently. */
static int misused(struct pmi2_wire *wire, struct err *err)
{
	wire->lost = true;
	return err_fail(err, EXIT_USAGE,
		"rendezvous: couldn't reach the PMI2 server of this node: it serves one program of a task: "
		"start each with an srun of its own");
}

/* The answer is one line in the style of PMI 1. */
int pmi2_wire_open(struct pmi2_wire *wire, int fd, struct deadline deadline, struct err *err)
{
	char line[200] = "";
	size_t got = 0;
	*wire = (struct pmi2_wire) { .fd = fd };
	if (transmit(wire, HELLO, strlen(HELLO), deadline, NULL) < 0)
		return misused(wire, err);
	while (got + 1 < sizeof line && (got == 0 || line[got - 1] != '\n')) {
		int rc = receive(wire, line, got + 1, &got, deadline);
		if (rc == 0)
			return lose(wire, err, "reach", "it does not answer");
		if (rc < 0)
			break;
	}
	if (strncmp(line, HELLO_BACK, strlen(HELLO_BACK)) != 0)
		return misused(wire, err);
	if (!strstr(line, " rc=0 ") || !strstr(line, " pmi_version=2 "))
		return lose(wire, err, "reach", "it does not speak version 2 of PMI");
	return 0;
}

static int send_request(struct pmi2_wire *wire, struct deadline deadline, struct err *err,
	const char *request, va_list args)
{
	AUTO_FREE char *body = NULL, *message = NULL;
	if (vasprintf(&body, request, args) < 0
		|| asprintf(&message, "%-6zu%s", strlen(body), body) < 0)
		return err_set(err, "rendezvous: no memory");
	return transmit(wire, message, strlen(message), deadline, err);
}

int pmi2_wire_send(struct pmi2_wire *wire, struct deadline deadline, struct err *err,
	const char *request, ...)
{
	va_list args;
	va_start(args, request);
	int rc = send_request(wire, deadline, err, request, args);
	va_end(args);
	return rc;
}

/* Takes the answer to a fence, which arrives out of order. */
static bool take_fence(struct pmi2_wire *wire)
{
	if (wire->fence != PMI2_FENCE_ASKED || !field_is(wire, "cmd", "kvs-fence-response"))
		return false;
	wire->fence = PMI2_FENCE_OVER;
	wire->fence_rc = field_is(wire, "rc", "0") ? 0 : -1;
	return true;
}

static int refused(const struct pmi2_wire *wire, const char *command, struct err *err)
{
	AUTO_FREE char *why = pmi2_wire_text(wire, "errmsg");
	return err_fail(err, EXIT_LOST,
		"rendezvous: couldn't have the PMI2 server of this node do %s: %s", command,
		why ? why : "it gives no reason");
}

static int read_answer(struct pmi2_wire *wire, const char *command, struct deadline deadline,
	struct err *err)
{
	char expected[64];
	snprintf(expected, sizeof expected, "%s-response", command);
	do {
		int rc = next_message(wire, deadline, err);
		if (rc == 0)
			return lose(wire, err, "hear", "it does not answer");
		if (rc < 0)
			return -1;
	} while (take_fence(wire));
	if (!field_is(wire, "cmd", expected))
		return lose(wire, err, "understand", "an answer is not to what was asked");
	return field_is(wire, "rc", "0") ? 0 : refused(wire, command, err);
}

int pmi2_wire_ask(struct pmi2_wire *wire, struct deadline deadline, struct err *err,
	const char *request, ...)
{
	char command[32];
	va_list args;
	snprintf(command, sizeof command, "%.*s", (int)strcspn(request + 4, ";"), request + 4);
	va_start(args, request);
	int rc = send_request(wire, deadline, err, request, args);
	va_end(args);
	return rc < 0 ? -1 : read_answer(wire, command, deadline, err);
}

int pmi2_wire_fence(struct pmi2_wire *wire, struct deadline deadline, struct err *err)
{
	if (wire->fence == PMI2_NO_FENCE) {
		if (pmi2_wire_send(wire, deadline, err, "cmd=kvs-fence;") < 0)
			return -1;
		wire->fence = PMI2_FENCE_ASKED;
	}
	if (wire->fence == PMI2_FENCE_ASKED) {
		int rc = next_message(wire, deadline, err);
		if (rc <= 0)
			return rc;
		if (!take_fence(wire))
			return lose(wire, err, "understand", "an answer is not to what was asked");
	}
	wire->fence = PMI2_NO_FENCE;
	return wire->fence_rc == 0 ? 1 : refused(wire, "a fence", err);
}

/* ---- the mapping ---- */

long pmi2_map_node(const char *map, long rank)
{
	long first, nodes, each;
	int end = 0;
	if (rank < 0 || strncmp(map, "(vector", 7) != 0)
		return -1;
	for (map += 7; sscanf(map, ",(%8ld,%8ld,%8ld)%n", &first, &nodes, &each, &end) == 3 && end > 0;
		 map += end, end = 0) {
		if (first < 0 || nodes < 0 || each < 1)
			return -1;
		if (rank < nodes * each)
			return first + rank / each;
		rank -= nodes * each;
	}
	return -1;
}
