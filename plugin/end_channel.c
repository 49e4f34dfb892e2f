/* SPDX-License-Identifier: Apache-2.0 */
/* One connection carries one message. */
#include "config.h"

#include "plugin/end_channel.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/auto.h"
#include "common/clock.h"
#include "common/listen.h"
#include "common/number.h"

#define SPARE_PORTS 64     /* left free in a range; srun uses 3, 2 more per 48 nodes, 1 for PMIx */
#define LISTENS 10         /* TCP_LISTEN, as /proc/net/tcp prints it */
#define VISIT_SECONDS 10.0 /* for a message, where there is time to wait for it */
#define READ_SECONDS 0.2   /* messages have already arrived: a silent connection may be ignored */
#define SHARE 0.5          /* of the time left, for those who have said a part: others may follow */

/* ---- in srun ---- */

static int make_secret(char out[END_SECRET_SIZE])
{
	unsigned char bytes[(END_SECRET_SIZE - 1) / 2];
	if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
		return -1;
	for (size_t i = 0; i < sizeof bytes; i++)
		snprintf(out + 2 * i, 3, "%02x", bytes[i]);
	return 0;
}

/* Ports of the range on which a process listens here; -1: unknown. Reading the list takes no port,
 * while trying to listen would. */
static int taken_ports(const uint16_t *range, const char *list)
{
	char line[300];
	unsigned port, state;
	int taken = 0;
	AUTO_FCLOSE FILE *file = fopen(list, "re");
	while (file && fgets(line, sizeof line, file))
		taken += sscanf(line, " %*d: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x", &port, &state) == 2
			&& state == LISTENS && port >= range[0] && port <= range[1];
	return file ? taken : -1;
}

/* Half of the range stays free, for other sruns. */
static bool has_ports_to_spare(const uint16_t *range)
{
	int size = range[1] - range[0] + 1, four = taken_ports(range, "/proc/net/tcp"),
		six = taken_ports(range, "/proc/net/tcp6");
	int left = size - four - (six > 0 ? six : 0) - 1;
	return four >= 0 && left >= SPARE_PORTS && left >= size / 2;
}

static int listen_within(const uint16_t *range, int *port)
{
	if (!range)
		return listen_any(0, port);
	for (int want = range[0]; want <= range[1]; want++) {
		int fd = listen_any(want, port);
		if (fd >= 0 || errno != EADDRINUSE)
			return fd;
	}
	return -1;
}

int end_channel_open(struct end_channel *channel, const uint16_t *range,
	char value[END_CHANNEL_VALUE_SIZE], struct err *err)
{
	int port = 0;
	bool listens = !range || has_ports_to_spare(range);
	channel->fd = -1;
	AUTO_CLOSE int fd = listens ? listen_within(range, &port) : -1;
	if (make_secret(channel->secret) < 0
		|| (listens && (fd < 0 || fcntl(fd, F_SETFL, O_NONBLOCK) < 0)))
		return err_set(err, "couldn't listen for the ends of tasks: %m");
	snprintf(value, END_CHANNEL_VALUE_SIZE, "%d:%s", port, channel->secret);
	channel->fd = AUTO_TAKE_FD(fd);
	return 0;
}

/* Reads what has arrived. Done after a line, too many bytes for one, or the end of the
 * connection. */
static void listen_to(struct end_visitor *visitor)
{
	while (!visitor->done) {
		ssize_t n = read(visitor->fd, visitor->bytes + visitor->used,
			sizeof visitor->bytes - visitor->used);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		visitor->used += n > 0 ? (size_t)n : 0;
		visitor->done = n <= 0 || visitor->used == sizeof visitor->bytes
			|| visitor->bytes[visitor->used - 1] == '\n';
	}
}

/* Who has said the first part of a message is waited for until `end`, who has said nothing until
 * `silent`, or as long as something comes. */
static void listen_to_all(struct end_visitors *visitors, const char *secret, struct deadline silent,
	struct deadline end)
{
	for (int came = 1;;) {
		struct pollfd polled[END_VISITORS];
		bool waiting = false, speaking = false;
		for (int i = 0; i < visitors->count; i++) {
			struct end_visitor *visitor = &visitors->all[i];
			listen_to(visitor);
			polled[i] = (struct pollfd) { visitor->done ? -1 : visitor->fd, POLLIN, 0 };
			waiting |= !visitor->done;
			speaking |= !visitor->done && end_begins(visitor->bytes, visitor->used, secret);
		}
		struct deadline until = speaking ? end : silent;
		if (!waiting || deadline_passed(end) || (came <= 0 && deadline_passed(until)))
			return;
		came = poll(polled, (nfds_t)visitors->count, (int)(deadline_left(until) * 1e3) + 1);
	}
}

static bool somebody_waits(const struct end_channel *channel)
{
	struct pollfd polled = { channel->fd, POLLIN, 0 };
	return poll(&polled, 1, 0) > 0 && (polled.revents & POLLIN);
}

static void accept_waiting(const struct end_channel *channel, struct end_visitors *visitors)
{
	while (visitors->count < END_VISITORS && somebody_waits(channel)) {
		int fd = accept4(channel->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd >= 0)
			visitors->all[visitors->count++] =
				(struct end_visitor) { .fd = fd, .until = deadline_in(VISIT_SECONDS) };
		else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
			break;
	}
}

/* Accepts a batch of connections and takes their messages. Returns how many there were. */
static int take_batch(const struct end_channel *channel, struct deadline end,
	struct first_end *state)
{
	static struct end_visitors visitors;
	struct task_report report;
	double seconds = deadline_left(end);
	visitors.count = 0;
	accept_waiting(channel, &visitors);
	listen_to_all(&visitors, channel->secret,
		deadline_in(seconds < READ_SECONDS ? seconds : READ_SECONDS), deadline_in(SHARE * seconds));
	for (int i = 0; i < visitors.count; i++) {
		enum end_message kind =
			end_read(visitors.all[i].bytes, visitors.all[i].used, channel->secret, &report);
		if (kind == END_REPORT)
			first_end_add(state, &report);
		state->running |= kind == END_RUNNING;
		close(visitors.all[i].fd);
	}
	return visitors.count;
}

void end_channel_collect(struct end_channel *channel, double seconds, struct first_end *state)
{
	struct deadline end = deadline_in(seconds);
	while (channel->fd >= 0 && take_batch(channel, end, state) > 0 && !deadline_passed(end))
		;
	if (channel->fd >= 0)
		close(channel->fd);
	channel->fd = -1;
}

/* ---- in muster-run ---- */

int end_channel_hear(const struct end_channel *channel, struct end_visitors *visitors,
	end_channel_heard *heard, void *arg)
{
	struct task_report report;
	int left = 0;
	accept_waiting(channel, visitors);
	for (int i = 0; i < visitors->count; i++) {
		struct end_visitor *visitor = &visitors->all[i];
		listen_to(visitor);
		if (!visitor->done && !deadline_passed(visitor->until)) {
			visitors->all[left++] = *visitor;
			continue;
		}
		enum end_message kind = end_read(visitor->bytes, visitor->used, channel->secret, &report);
		if (kind == END_BAD || !heard(arg, kind, &report, visitor->fd))
			close(visitor->fd);
	}
	visitors->count = left;
	return left;
}

void end_channel_close(struct end_channel *channel, struct end_visitors *visitors)
{
	for (int i = 0; i < visitors->count; i++)
		close(visitors->all[i].fd);
	visitors->count = 0;
	if (channel->fd >= 0)
		close(channel->fd);
	channel->fd = -1;
}

/* ---- in slurmstepd ---- */

bool end_address_read(const char *host, const char *value, struct end_address *address)
{
	int64_t port;
	const char *secret = value ? strchr(value, ':') : NULL;
	size_t digits = secret ? (size_t)(secret - value) : 0;
	if (!host || !secret || strlen(host) >= sizeof address->host || digits >= sizeof address->port)
		return false;
	if (strspn(++secret, "0123456789abcdef") != END_SECRET_SIZE - 1 || secret[END_SECRET_SIZE - 1])
		return false;
	strcpy(address->host, host);
	strcpy(address->secret, secret);
	snprintf(address->port, sizeof address->port, "%.*s", (int)digits, value);
	return number_whole(address->port, 0, 65535, &port);
}

/* A socket that belongs to the user, for firewalls too. The raw call changes only this thread, and
 * a root process can undo what it changes. */
static int socket_of(uid_t uid, int family)
{
	uid_t self = geteuid();
	if (self != uid && syscall(SYS_setresuid, -1, uid, -1) < 0)
		return -1;
	int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (self != uid && syscall(SYS_setresuid, -1, self, -1) < 0) {
		close(fd);
		return -1;
	}
	return fd;
}

static bool wait_to_write(int fd, struct deadline deadline)
{
	struct pollfd polled = { fd, POLLOUT, 0 };
	int n;
	while ((n = poll(&polled, 1, (int)(deadline_left(deadline) * 1e3) + 1)) < 0 && errno == EINTR)
		;
	return n > 0;
}

static int connect_to(const struct addrinfo *to, uid_t uid, struct deadline deadline)
{
	int error = 0;
	socklen_t size = sizeof error;
	AUTO_CLOSE int fd = socket_of(uid, to->ai_family);
	if (fd < 0 || (connect(fd, to->ai_addr, to->ai_addrlen) < 0 && errno != EINPROGRESS)
		|| !wait_to_write(fd, deadline))
		return -1;
	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0 || error)
		return -1;
	return AUTO_TAKE_FD(fd);
}

/* Until the last byte is acknowledged the message may still be lost. srun learns of the step's end
 * over another connection and would not wait for it, so close() waits for the acknowledgement. */
static bool send_all(int fd, const char *message, size_t size, struct deadline deadline)
{
	const struct linger until_acknowledged = { .l_onoff = 1, .l_linger = 1 };
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &until_acknowledged, sizeof until_acknowledged);
	while (size > 0) {
		ssize_t n = send(fd, message, size, MSG_NOSIGNAL);
		if (n < 0 && ((errno != EAGAIN && errno != EINTR) || !wait_to_write(fd, deadline)))
			return false;
		message += n > 0 ? n : 0;
		size -= n > 0 ? (size_t)n : 0;
	}
	return true;
}

int end_channel_hold(const struct end_address *address, uid_t uid, const char *message, size_t size,
	double seconds)
{
	const struct addrinfo hints = { .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
		.ai_socktype = SOCK_STREAM };
	struct deadline deadline = deadline_in(seconds);
	struct addrinfo *to = NULL;
	if (strcmp(address->port, "0") == 0
		|| getaddrinfo(address->host, address->port, &hints, &to) != 0)
		return -1;
	AUTO_CLOSE int fd = connect_to(to, uid, deadline);
	freeaddrinfo(to);
	return fd >= 0 && send_all(fd, message, size, deadline) ? AUTO_TAKE_FD(fd) : -1;
}

int end_channel_tell(const struct end_address *address, uid_t uid, const char *message, size_t size,
	double seconds)
{
	int fd = end_channel_hold(address, uid, message, size, seconds);
	if (fd < 0)
		return -1;
	close(fd);
	return 0;
}
