/* SPDX-License-Identifier: Apache-2.0 */
/* All in the caller's thread. A connection is there before its other end has looked: whoever connects rarely waits. */
#include "config.h"

#include "trainer/comm_links.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/bytes.h"
#include "common/clock.h"
#include "common/hash.h"
#include "common/siphash.h"
#include "launch/run_key.h"
#include "trainer/comm_address.h"

#define MAGIC "MCL1"
#define FROM_AT 4
#define TO_AT 8
#define TAG_AT 12
#define HELLO_SIZE 20
#define ALL_ARE_CONNECTED 0x47
#define STRANGERS_MAX 64
#define KNOWING_SHARE 0.9 /* of the time */
#define FDS(size) ((nfds_t)(size) + STRANGERS_MAX + 1)

union address {
	struct sockaddr any;
	struct sockaddr_in four;
	struct sockaddr_in6 six;
};

struct link {
	int fd;      /* -1: none */
	bool greeted; /* the hello was sent, or has come */
	bool ready;   /* between rank 0 and another one: that this one is connected with all was told */
	union address at;
	unsigned char key[16];
};

/* A connection that has not said whose it is. */
struct stranger {
	int fd; /* -1: none */
	unsigned long age;
	size_t have;
	unsigned char hello[HELLO_SIZE];
};

struct comm_links {
	int rank, size, listener;
	unsigned char key[16];
	char place[COMM_ADDRESS_SIZE + 8 + HASH_HEX_SIZE];
	struct link *links;   /* by rank */
	struct pollfd *fds;   /* of the peers by rank, of the strangers, of the listening socket */
	struct stranger strangers[STRANGERS_MAX];
	unsigned long strangers_seen;
};

/* ---- places ---- */

static bool read_address(const char *digits, int port, union address *at)
{
	memset(at, 0, sizeof *at);
	if (inet_pton(AF_INET, digits, &at->four.sin_addr) == 1) {
		at->four.sin_family = AF_INET;
		at->four.sin_port = htons((uint16_t)port);
		return true;
	}
	at->six.sin6_family = AF_INET6;
	at->six.sin6_port = htons((uint16_t)port);
	return inet_pton(AF_INET6, digits, &at->six.sin6_addr) == 1;
}

static socklen_t address_size(const union address *at)
{
	return at->any.sa_family == AF_INET ? sizeof at->four : sizeof at->six;
}

static int draw_key(unsigned char key[16], char digits[HASH_HEX_SIZE], struct err *err)
{
	struct hash128 random;
	if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
		return err_set(err, "no random bits: %m");
	return run_key_read(hash_hex(random, digits), key, err);
}

static int begin_listening(struct comm_links *links, const char *address, struct err *err)
{
	union address at;
	char digits[HASH_HEX_SIZE];
	if (!read_address(address, 0, &at))
		return err_set(err, "it is no address");
	socklen_t size = address_size(&at);
	links->listener = socket(at.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (links->listener < 0 || bind(links->listener, &at.any, size) < 0 || listen(links->listener, SOMAXCONN) < 0 ||
		getsockname(links->listener, &at.any, &size) < 0)
		return err_set(err, "%m");
	if (draw_key(links->key, digits, err) < 0)
		return -1;
	int port = ntohs(at.any.sa_family == AF_INET ? at.four.sin_port : at.six.sin6_port);
	snprintf(links->place, sizeof links->place, "%s %d %s", address, port, digits);
	return 0;
}

struct comm_links *comm_links_open(int rank, int size, const char *address, struct err *err)
{
	struct comm_links *links = calloc(1, sizeof *links);
	if (!links) {
		err_set(err, "out of memory");
		return NULL;
	}
	*links = (struct comm_links){ .rank = rank, .listener = -1, .links = calloc((size_t)size, sizeof *links->links),
		.fds = calloc(FDS(size), sizeof *links->fds) };
	for (int i = 0; i < STRANGERS_MAX; i++)
		links->strangers[i].fd = -1;
	if (!links->links || !links->fds) {
		err_set(err, "out of memory");
	} else {
		links->size = size;
		for (int peer = 0; peer < size; peer++)
			links->links[peer].fd = -1;
		if (begin_listening(links, address, err) == 0)
			return links;
	}
	comm_links_close(links);
	return NULL;
}

const char *comm_links_place(const struct comm_links *links)
{
	return links->place;
}

int comm_links_find(struct comm_links *links, int peer, const char *place)
{
	char address[COMM_ADDRESS_SIZE] = "", *end;
	const char *space = strchr(place, ' ');
	if (!space || (size_t)(space - place) >= sizeof address)
		return -1;
	memcpy(address, place, (size_t)(space - place));
	long port = strtol(space + 1, &end, 10);
	if (port < 1 || port > 65535 || *end != ' ' || !read_address(address, (int)port, &links->links[peer].at))
		return -1;
	return run_key_read(end + 1, links->links[peer].key, NULL);
}

/* ---- hellos ---- */

static void write_hello(unsigned char hello[HELLO_SIZE], int from, int to, const unsigned char key[16])
{
	memcpy(hello, MAGIC, FROM_AT);
	bytes_put_le32(hello + FROM_AT, (uint32_t)from);
	bytes_put_le32(hello + TO_AT, (uint32_t)to);
	bytes_put_le64(hello + TAG_AT, siphash(key, hello, TAG_AT));
}

/* Who says hello, and may; -1: a stranger. */
static int read_hello(const struct comm_links *links, const unsigned char hello[HELLO_SIZE])
{
	unsigned char wanted[HELLO_SIZE];
	uint32_t from = bytes_le32(hello + FROM_AT);
	if (from <= (uint32_t)links->rank || from >= (uint32_t)links->size || links->links[from].fd >= 0)
		return -1;
	write_hello(wanted, (int)from, links->rank, links->key);
	return memcmp(hello, wanted, HELLO_SIZE) == 0 ? (int)from : -1;
}

/* A rank that is not connected with this one yet; -1: all are. */
static int missing(const struct comm_links *links)
{
	for (int peer = 0; peer < links->size; peer++)
		if (peer != links->rank && !links->links[peer].greeted)
			return peer;
	return -1;
}

/* Says hello to a lower rank once the connection is there. False with errno when it can't be had. */
static bool say_hello(struct comm_links *links, int peer)
{
	struct link *link = &links->links[peer];
	unsigned char hello[HELLO_SIZE];
	if (link->greeted)
		return true;
	write_hello(hello, links->rank, peer, link->key);
	ssize_t sent = send(link->fd, hello, sizeof hello, MSG_DONTWAIT | MSG_NOSIGNAL);
	link->greeted = sent == (ssize_t)sizeof hello;
	return link->greeted || (sent < 0 && (errno == EAGAIN || errno == EINTR));
}

/* Begins to connect with a lower rank. */
static bool begin_link(struct comm_links *links, int peer)
{
	struct link *link = &links->links[peer];
	link->fd = socket(link->at.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (link->fd < 0)
		return false;
	int rc = connect(link->fd, &link->at.any, address_size(&link->at));
	return (rc == 0 || errno == EINPROGRESS) && say_hello(links, peer);
}

/* ---- strangers ---- */

static void drop_stranger(struct stranger *stranger)
{
	close(stranger->fd);
	stranger->fd = -1;
}

/* Takes what has come of a hello, and no more: what follows it is for Gloo. */
static void hear_stranger(struct comm_links *links, struct stranger *stranger)
{
	ssize_t got = recv(stranger->fd, stranger->hello + stranger->have, HELLO_SIZE - stranger->have, MSG_DONTWAIT);
	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	stranger->have += got > 0 ? (size_t)got : 0;
	if (got > 0 && stranger->have < HELLO_SIZE)
		return;
	int peer = got > 0 ? read_hello(links, stranger->hello) : -1;
	if (peer < 0) {
		drop_stranger(stranger);
		return;
	}
	links->links[peer].fd = stranger->fd;
	links->links[peer].greeted = true;
	stranger->fd = -1;
}

static struct stranger *place_for_stranger(struct comm_links *links)
{
	struct stranger *oldest = links->strangers;
	for (int i = 0; i < STRANGERS_MAX; i++) {
		if (links->strangers[i].fd < 0)
			return &links->strangers[i];
		if (links->strangers[i].age < oldest->age)
			oldest = &links->strangers[i];
	}
	drop_stranger(oldest);
	return oldest;
}

static void take_connections(struct comm_links *links)
{
	for (int i = 0; i < STRANGERS_MAX; i++) {
		int fd = accept4(links->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd < 0)
			return;
		struct stranger *stranger = place_for_stranger(links);
		*stranger = (struct stranger){ .fd = fd, .age = links->strangers_seen++ };
		hear_stranger(links, stranger);
	}
}

/* ---- connecting ---- */

/* What is awaited of a connection: of one that stands nothing but its end, or a word between rank 0 and another one. */
static short awaited(const struct comm_links *links, int peer)
{
	const struct link *link = &links->links[peer];
	if (!link->greeted)
		return POLLOUT;
	return peer == 0 || (links->rank == 0 && !link->ready) ? POLLIN | POLLRDHUP : POLLRDHUP;
}

/* Waits for something to do. */
static void await_news(struct comm_links *links, struct deadline deadline)
{
	struct pollfd *others = links->fds + links->size;
	for (int peer = 0; peer < links->size; peer++)
		links->fds[peer] = (struct pollfd){ .fd = links->links[peer].fd, .events = awaited(links, peer) };
	for (int i = 0; i < STRANGERS_MAX; i++)
		others[i] = (struct pollfd){ .fd = links->strangers[i].fd, .events = POLLIN };
	others[STRANGERS_MAX] = (struct pollfd){ .fd = links->listener, .events = POLLIN };
	poll(links->fds, FDS(links->size), (int)(deadline_left(deadline) * 1000) + 1);
}

static void meet_strangers(struct comm_links *links)
{
	const struct pollfd *others = links->fds + links->size;
	for (int i = 0; i < STRANGERS_MAX; i++)
		if (others[i].revents)
			hear_stranger(links, &links->strangers[i]);
	if (others[STRANGERS_MAX].revents)
		take_connections(links);
}

static bool say_word(const struct link *link)
{
	return send(link->fd, &(unsigned char){ ALL_ARE_CONNECTED }, 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1;
}

/* 1 when it has come, 0 not yet, -1 where something else did. */
static int hear_word(const struct link *link)
{
	unsigned char word = 0;
	if (recv(link->fd, &word, 1, MSG_DONTWAIT) != 1)
		return 0;
	return word == ALL_ARE_CONNECTED ? 1 : -1;
}

/* Rank 0: whether each is connected with all; then it tells each. */
static int all_are_ready(struct comm_links *links, int *faulty)
{
	bool all = missing(links) < 0;
	for (int peer = 1; peer < links->size; peer++) {
		struct link *link = &links->links[peer];
		int heard = link->ready || !link->greeted ? 0 : hear_word(link);
		link->ready = link->ready || heard > 0;
		all = all && link->ready;
		*faulty = peer;
		if (heard < 0)
			return -1;
	}
	/* One that has gone meanwhile is missed at the first operation. */
	for (int peer = 1; peer < links->size && all; peer++)
		(void)say_word(&links->links[peer]);
	return all;
}

/* Likewise; -1: *faulty has sent what no rank does. */
static int all_connected(struct comm_links *links, int *faulty)
{
	struct link *zero = &links->links[0];
	if (links->rank == 0)
		return all_are_ready(links, faulty);
	if (missing(links) >= 0)
		return 0;
	zero->ready = zero->ready || say_word(zero);
	*faulty = 0;
	return hear_word(zero);
}

/* Looks after the connection with a peer, of which poll has told something. */
static enum comm_links_end tend(struct comm_links *links, int peer, short news, struct err *err)
{
	struct link *link = &links->links[peer];
	int error = 0;
	if (!(news & (POLLERR | POLLHUP | POLLRDHUP))) {
		if (say_hello(links, peer))
			return COMM_LINKS_ALL;
		error = errno;
	} else {
		getsockopt(link->fd, SOL_SOCKET, SO_ERROR, &error, &(socklen_t){ sizeof error });
	}
	if (link->greeted || error == 0) {
		err_fail(err, EXIT_LOST, "it closed its connection");
		return COMM_LINKS_LEFT;
	}
	err_fail(err, EXIT_LOST, "%s", strerror(error));
	return COMM_LINKS_MISSING;
}

/* Whether this rank can tell who it is that others may be waiting for, too. */
static bool knows_more(const struct comm_links *links)
{
	return links->rank > 0 && missing(links) >= 0;
}

static enum comm_links_end time_is_over(const struct comm_links *links, double seconds, int *peer, struct err *err)
{
	*peer = missing(links);
	if (*peer >= 0) {
		err_fail(err, EXIT_LOST, "%s within %g s", *peer < links->rank ? "no answer" : "it did not connect", seconds);
		return links->rank > 0 ? COMM_LINKS_MISSING : COMM_LINKS_LEFT;
	}
	for (*peer = 0; links->rank == 0 && (*peer == 0 || links->links[*peer].ready); ++*peer)
		;
	err_fail(err, EXIT_LOST, "it was not connected with all ranks within %g s", seconds);
	return COMM_LINKS_LEFT;
}

static enum comm_links_end begin_links(struct comm_links *links, int *peer, struct err *err)
{
	for (*peer = 0; *peer < links->rank; ++*peer)
		if (!begin_link(links, *peer)) {
			err_fail(err, EXIT_LOST, "%m");
			return COMM_LINKS_MISSING;
		}
	return COMM_LINKS_ALL;
}

/* Who waits for this rank sees it. */
static void end_connections(struct comm_links *links)
{
	for (int peer = 0; peer < links->size; peer++) {
		int fd = comm_links_take(links, peer);
		if (fd >= 0)
			close(fd);
	}
	for (int i = 0; i < STRANGERS_MAX; i++)
		if (links->strangers[i].fd >= 0)
			drop_stranger(&links->strangers[i]);
}

/* Looks after those of which poll told something. */
static enum comm_links_end tend_all(struct comm_links *links, int *peer, struct err *err)
{
	enum comm_links_end end = COMM_LINKS_ALL;
	for (int each = 0; each < links->size && end == COMM_LINKS_ALL; each++)
		if (links->fds[each].revents) {
			*peer = each;
			end = tend(links, each, links->fds[each].revents, err);
		}
	return end;
}

enum comm_links_end comm_links_connect(struct comm_links *links, double seconds, int *peer, struct err *err)
{
	double begun = clock_now();
	int all = 0;
	enum comm_links_end end = begin_links(links, peer, err);
	/* What rank 0 says counts also where another one that has heard it has left already. */
	while (end == COMM_LINKS_ALL && (all = all_connected(links, peer)) == 0) {
		end = tend_all(links, peer, err);
		/* Who only waits for others' waiting lets them be the first to say for whom. */
		struct deadline deadline = { begun + (knows_more(links) ? KNOWING_SHARE : 1) * seconds };
		if (end == COMM_LINKS_ALL && deadline_passed(deadline))
			end = time_is_over(links, seconds, peer, err);
		if (end == COMM_LINKS_ALL) {
			await_news(links, deadline);
			meet_strangers(links);
		}
	}
	if (all < 0) {
		err_fail(err, EXIT_LOST, "it sent something else than that it is connected with all");
		end = COMM_LINKS_LEFT;
	}
	if (end != COMM_LINKS_ALL)
		end_connections(links);
	return end;
}

int comm_links_take(struct comm_links *links, int peer)
{
	int fd = links->links[peer].fd;
	links->links[peer].fd = -1;
	return fd;
}

void comm_links_close(struct comm_links *links)
{
	if (!links)
		return;
	end_connections(links);
	if (links->listener >= 0)
		close(links->listener);
	free(links->links);
	free(links->fds);
	free(links);
}
