/* SPDX-License-Identifier: Apache-2.0 */
/* One thread accepts connections; one call connects and tries every address of a name. */
#include "config.h"

#include "doctor/doctor_way.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/acceptor.h"
#include "common/auto.h"
#include "common/clock.h"
#include "common/listen.h"
#include "common/thread.h"

#define WORD_SIZE 64

struct way {
	struct acceptor acceptor;
	int stop[2]; /* the thread ends when the other end of `stop` is closed */
	pthread_t thread;
	char word[WORD_SIZE];
};

/* ---- rank 0 ---- */

static void *serve(void *arg)
{
	struct way *way = arg;
	for (;;) {
		double seconds = INFINITY;
		struct pollfd wait[2] = { { .fd = acceptor_poll(&way->acceptor, &seconds),
									  .events = POLLIN },
			{ .fd = way->stop[0], .events = POLLIN } };
		if (poll(wait, 2, isinf(seconds) ? -1 : (int)(seconds * 1000) + 1) < 0 && errno != EINTR)
			return NULL;
		if (wait[1].revents)
			return NULL;
		AUTO_CLOSE int peer = acceptor_take(&way->acceptor, NULL, NULL);
		/* Blocking again: these few bytes fit into the send buffer. */
		ssize_t sent = peer >= 0 && fcntl(peer, F_SETFL, 0) == 0;
		for (size_t at = 0; at < WORD_SIZE && sent > 0; at += (size_t)sent)
			sent = send(peer, way->word + at, WORD_SIZE - at, MSG_NOSIGNAL);
	}
}

struct way *way_open(int port, const char *word, int *got, struct err *err)
{
	struct way *way = calloc(1, sizeof *way);
	if (!way) {
		err_set(err, "network: no memory");
		return NULL;
	}
	way->stop[0] = way->stop[1] = -1;
	snprintf(way->word, sizeof way->word, "%s", word);
	way->acceptor.fd = port > 0 && port <= 65535 ? listen_any(port, got) : -1;
	if (way->acceptor.fd < 0)
		way->acceptor.fd = listen_any(0, got);
	if (way->acceptor.fd < 0 || fcntl(way->acceptor.fd, F_SETFL, O_NONBLOCK) < 0
		|| pipe2(way->stop, O_CLOEXEC) < 0
		|| (errno = thread_start(&way->thread, serve, way)) != 0) {
		err_set(err, "network: couldn't listen: %m");
		for (int i = 0; i < 2; i++)
			if (way->stop[i] >= 0)
				close(way->stop[i]);
		if (way->acceptor.fd >= 0)
			close(way->acceptor.fd);
		free(way);
		return NULL;
	}
	return way;
}

void way_close(struct way *way)
{
	if (!way)
		return;
	close(way->stop[1]);
	pthread_join(way->thread, NULL);
	close(way->stop[0]);
	close(way->acceptor.fd);
	free(way);
}

/* ---- the others ---- */

static bool wait_for(int fd, short events, struct deadline deadline)
{
	for (;;) {
		struct pollfd wait = { .fd = fd, .events = events };
		int ready = poll(&wait, 1, (int)(deadline_left(deadline) * 1000) + 1);
		if (ready > 0)
			return true;
		if (deadline_passed(deadline)) {
			errno = ETIMEDOUT;
			return false;
		}
	}
}

/* Returns 0, or -1 with errno; EBADMSG if another program answered. */
static int hear(const struct addrinfo *address, const char *word, struct deadline deadline)
{
	char heard[WORD_SIZE] = "";
	size_t used = 0;
	int error = 0;
	socklen_t size = sizeof error;
	AUTO_CLOSE int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || (connect(fd, address->ai_addr, address->ai_addrlen) < 0 && errno != EINPROGRESS))
		return -1;
	if (!wait_for(fd, POLLOUT, deadline) || getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0)
		return -1;
	errno = error;
	while (!error && used < sizeof heard && wait_for(fd, POLLIN, deadline)) {
		ssize_t n = recv(fd, heard + used, sizeof heard - used, 0);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			continue;
		if (n <= 0)
			break;
		used += (size_t)n;
	}
	if (used == sizeof heard && strncmp(heard, word, sizeof heard) == 0)
		return 0;
	if (used > 0 || errno == 0)
		errno = EBADMSG;
	return -1;
}

static int explain(const struct addrinfo *address, int port, int error, struct err *err)
{
	char text[INET6_ADDRSTRLEN] = "?";
	if (address)
		getnameinfo(address->ai_addr, address->ai_addrlen, text, sizeof text, NULL, 0,
			NI_NUMERICHOST);
	return err_set(err, "%s port %d: %s", text, port,
		error == EBADMSG ? "another program answers" : strerror(error));
}

int way_try(const char *host, int port, const char *word, double seconds, struct err *err)
{
	const struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM };
	struct addrinfo *list = NULL, *last = NULL;
	struct deadline deadline = deadline_in(seconds);
	char service[16];
	int error = ENOENT;
	snprintf(service, sizeof service, "%d", port);
	int rc = getaddrinfo(host, service, &hints, &list);
	if (rc != 0)
		return err_set(err, "%s", gai_strerror(rc));
	for (struct addrinfo *one = list; one; one = one->ai_next) {
		if (hear(one, word, deadline) == 0) {
			freeaddrinfo(list);
			return 0;
		}
		error = errno;
		last = one;
	}
	explain(last, port, error, err);
	freeaddrinfo(list);
	return -1;
}
