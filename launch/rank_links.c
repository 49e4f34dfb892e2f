/* SPDX-License-Identifier: Apache-2.0 */
/* One epoll descriptor, which can itself be polled, has the listening socket and those that have
 * connected and not yet said who they are. */
#include "config.h"

#include "launch/rank_links.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/acceptor.h"
#include "common/bytes.h"
#include "common/descriptors.h"
#include "common/hash.h"
#include "common/listen.h"
#include "common/siphash.h"
#include "launch/rank_address.h"
#include "launch/run_key.h"

#define MAGIC "MCL1"
#define FROM_AT 4
#define TO_AT 8
#define TAG_AT 12
#define STRANGERS_SPARE 64  /* that are kept besides one for each rank */
#define LISTENER UINT32_MAX /* beside the numbers of the strangers */

union address {
	struct sockaddr any;
	struct sockaddr_in four;
	struct sockaddr_in6 six;
};

struct place {
	union address at;
	unsigned char key[16];
};

/* An accepted connection whose rank is not known yet. */
struct stranger {
	int fd; /* -1: none */
	unsigned long age;
	size_t have;
	unsigned char hello[RANK_LINKS_HELLO];
};

struct rank_links {
	int rank, size, epoll, stranger_count;
	struct acceptor acceptor; /* for the listening socket */
	bool rests;               /* that socket is not polled */
	unsigned char key[16];
	char place[RANK_ADDRESS_SIZE + 8 + HASH_HEX_SIZE];
	unsigned long strangers_seen;
	struct stranger *strangers; /* [stranger_count] */
	struct place places[];      /* by rank */
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

static int poll_for(struct rank_links *links, int how, int fd, uint32_t events, uint32_t number)
{
	struct epoll_event event = { .events = events, .data.u32 = number };
	return epoll_ctl(links->epoll, how, fd, &event);
}

static int begin_listening(struct rank_links *links, const char *address, struct err *err)
{
	union address at;
	char digits[HASH_HEX_SIZE];
	if (!read_address(address, 0, &at))
		return err_set(err, "it is no address");
	socklen_t size = address_size(&at);
	int fd = links->acceptor.fd =
		descriptors_own(socket(at.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
	links->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (fd < 0 || links->epoll < 0 || bind(fd, &at.any, size) < 0 || listen(fd, SOMAXCONN) < 0
		|| getsockname(fd, &at.any, &size) < 0
		|| poll_for(links, EPOLL_CTL_ADD, fd, EPOLLIN, LISTENER) < 0)
		return err_set(err, "%m");
	if (run_key_draw(links->key, digits, err) < 0)
		return -1;
	int port = ntohs(at.any.sa_family == AF_INET ? at.four.sin_port : at.six.sin6_port);
	snprintf(links->place, sizeof links->place, "%s %d %s", address, port, digits);
	return 0;
}

struct rank_links *rank_links_open(int rank, int size, const char *address, struct err *err)
{
	struct rank_links *links = calloc(1, sizeof *links + (size_t)size * sizeof links->places[0]);
	if (!links) {
		err_set(err, "out of memory");
		return NULL;
	}
	links->rank = rank;
	links->size = size;
	links->epoll = links->acceptor.fd = -1;
	links->strangers = calloc((size_t)size + STRANGERS_SPARE, sizeof *links->strangers);
	links->stranger_count = links->strangers ? size + STRANGERS_SPARE : 0;
	for (int i = 0; i < links->stranger_count; i++)
		links->strangers[i].fd = -1;
	if (!links->strangers)
		err_set(err, "out of memory");
	else if (begin_listening(links, address, err) == 0)
		return links;
	rank_links_close(links);
	return NULL;
}

const char *rank_links_place(const struct rank_links *links)
{
	return links->place;
}

int rank_links_find(struct rank_links *links, int peer, const char *place)
{
	char address[RANK_ADDRESS_SIZE] = "", *end;
	const char *space = strchr(place, ' ');
	if (!space || (size_t)(space - place) >= sizeof address)
		return -1;
	memcpy(address, place, (size_t)(space - place));
	long port = strtol(space + 1, &end, 10);
	if (port < 1 || port > 65535 || *end != ' '
		|| !read_address(address, (int)port, &links->places[peer].at))
		return -1;
	return run_key_read(end + 1, links->places[peer].key, NULL);
}

/* ---- hellos ---- */

static void write_hello(unsigned char hello[RANK_LINKS_HELLO], int from, int to,
	const unsigned char key[16])
{
	memcpy(hello, MAGIC, FROM_AT);
	bytes_put_le32(hello + FROM_AT, (uint32_t)from);
	bytes_put_le32(hello + TO_AT, (uint32_t)to);
	bytes_put_le64(hello + TAG_AT, siphash(key, hello, TAG_AT));
}

/* The rank that says a valid hello; -1: not one. */
static int read_hello(const struct rank_links *links, const unsigned char hello[RANK_LINKS_HELLO])
{
	unsigned char wanted[RANK_LINKS_HELLO];
	uint32_t from = bytes_le32(hello + FROM_AT);
	if (from <= (uint32_t)links->rank || from >= (uint32_t)links->size)
		return -1;
	write_hello(wanted, (int)from, links->rank, links->key);
	return memcmp(hello, wanted, sizeof wanted) == 0 ? (int)from : -1;
}

int rank_links_connect(const struct rank_links *links, int peer,
	unsigned char hello[RANK_LINKS_HELLO])
{
	const union address *at = &links->places[peer].at;
	int fd =
		descriptors_own(socket(at->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
	if (fd < 0)
		return -1;
	socket_between_ranks(fd);
	if (connect(fd, &at->any, address_size(at)) < 0 && errno != EINPROGRESS) {
		int error = errno;
		close(fd);
		errno = error;
		return -1;
	}
	write_hello(hello, links->rank, peer, links->places[peer].key);
	return fd;
}

/* ---- strangers ---- */

static void drop(struct stranger *stranger)
{
	close(stranger->fd);
	stranger->fd = -1;
}

/* Takes what has come of a hello, and not a byte more: what follows it are frames. Returns the
 * descriptor of a peer; -1: it is none, or not yet. */
static int hear(struct rank_links *links, struct stranger *stranger, int *peer)
{
	int fd = stranger->fd;
	ssize_t got =
		recv(fd, stranger->hello + stranger->have, sizeof stranger->hello - stranger->have, 0);
	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return -1;
	stranger->have += got > 0 ? (size_t)got : 0;
	if (got > 0 && stranger->have < sizeof stranger->hello)
		return -1;
	*peer = got > 0 ? read_hello(links, stranger->hello) : -1;
	if (*peer < 0) {
		drop(stranger);
		return -1;
	}
	stranger->fd = -1;
	poll_for(links, EPOLL_CTL_DEL, fd, 0, 0);
	return fd;
}

/* A free place, or else that of the oldest. */
static struct stranger *place_for_stranger(struct rank_links *links)
{
	struct stranger *oldest = links->strangers;
	for (int i = 0; i < links->stranger_count && oldest->fd >= 0; i++)
		if (links->strangers[i].fd < 0 || links->strangers[i].age < oldest->age)
			oldest = &links->strangers[i];
	if (oldest->fd >= 0)
		drop(oldest);
	return oldest;
}

/* Accepts a connection. Returns as hear() does: most hellos have come by then. */
static int take_stranger(struct rank_links *links, int *peer)
{
	int fd = acceptor_take(&links->acceptor, NULL, NULL);
	if (fd < 0) {
		links->rests = acceptor_poll(&links->acceptor, &(double) { 0 }) < 0
			&& poll_for(links, EPOLL_CTL_MOD, links->acceptor.fd, 0, LISTENER) == 0;
		return -1;
	}
	socket_between_ranks(fd);
	struct stranger *stranger = place_for_stranger(links);
	*stranger = (struct stranger) { .fd = fd, .age = links->strangers_seen++ };
	fd = hear(links, stranger, peer);
	if (stranger->fd >= 0
		&& poll_for(links, EPOLL_CTL_ADD, stranger->fd, EPOLLIN,
			   (uint32_t)(stranger - links->strangers))
			< 0)
		drop(stranger);
	return fd;
}

int rank_links_poll(struct rank_links *links, double *seconds)
{
	if (links->rests && acceptor_poll(&links->acceptor, seconds) >= 0)
		links->rests = poll_for(links, EPOLL_CTL_MOD, links->acceptor.fd, EPOLLIN, LISTENER) < 0;
	return links->epoll;
}

int rank_links_accept(struct rank_links *links, int *peer)
{
	struct epoll_event event;
	int fd = -1;
	for (int i = 0;
		 i < links->stranger_count && fd < 0 && epoll_wait(links->epoll, &event, 1, 0) == 1; i++)
		fd = event.data.u32 == LISTENER ? take_stranger(links, peer)
										: hear(links, &links->strangers[event.data.u32], peer);
	return fd;
}

void rank_links_close(struct rank_links *links)
{
	if (!links)
		return;
	for (int i = 0; i < links->stranger_count; i++)
		if (links->strangers[i].fd >= 0)
			drop(&links->strangers[i]);
	free(links->strangers);
	if (links->acceptor.fd >= 0)
		close(links->acceptor.fd);
	if (links->epoll >= 0)
		close(links->epoll);
	free(links);
}
