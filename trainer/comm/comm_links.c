/* SPDX-License-Identifier: Apache-2.0 */
/* Connects a rank with all others in the caller's thread, in rounds: it takes what has come and
 * sends what it can, then decides whether all is done, and then waits. Nothing between the decision
 * and the wait may change what was decided, or the rank would wait for news that it already has.
 * Each call may do less than it was asked for, or nothing yet (EAGAIN): awaited() says what is left
 * to do. */
#include "config.h"

#include "trainer/comm/comm_links.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/acceptor.h"
#include "common/bytes.h"
#include "common/clock.h"
#include "common/hash.h"
#include "common/siphash.h"
#include "launch/run_key.h"
#include "trainer/comm/comm_address.h"

#define MAGIC "MCL1"
#define FROM_AT 4
#define TO_AT 8
#define TAG_AT 12
#define HELLO_SIZE 20
#define ALL_ARE_CONNECTED 0x47
#define STRANGERS_MAX 64
#define KNOWING_SHARE 0.9 /* of the time limit, for ranks that miss a peer themselves */
#define LAST_HELLO_SECONDS 1.0
#define FDS(size) ((nfds_t)(size) + STRANGERS_MAX + 1)

union address {
	struct sockaddr any;
	struct sockaddr_in four;
	struct sockaddr_in6 six;
};

struct link {
	int fd;           /* -1: none */
	size_t sent;      /* bytes of the hello */
	bool greeted;     /* the hello is sent, or has come */
	bool told, heard; /* between rank 0 and another: this end's word, and the other's, that it is
						 connected with all */
	union address at;
	unsigned char key[16];
};

/* An accepted connection whose rank is not known yet. */
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
	struct link *links; /* by rank */
	struct pollfd *fds; /* of the peers by rank, of the strangers, and of the listening socket */
	struct stranger strangers[STRANGERS_MAX];
	unsigned long strangers_seen;
	struct acceptor acceptor; /* for the listening socket */
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

static int begin_listening(struct comm_links *links, const char *address, struct err *err)
{
	union address at;
	char digits[HASH_HEX_SIZE];
	if (!read_address(address, 0, &at))
		return err_set(err, "it is no address");
	socklen_t size = address_size(&at);
	links->listener = socket(at.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (links->listener < 0 || bind(links->listener, &at.any, size) < 0
		|| listen(links->listener, SOMAXCONN) < 0
		|| getsockname(links->listener, &at.any, &size) < 0)
		return err_set(err, "%m");
	links->acceptor.fd = links->listener;
	if (run_key_draw(links->key, digits, err) < 0)
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
	*links = (struct comm_links) { .rank = rank,
		.listener = -1,
		.links = calloc((size_t)size, sizeof *links->links),
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
	if (port < 1 || port > 65535 || *end != ' '
		|| !read_address(address, (int)port, &links->links[peer].at))
		return -1;
	return run_key_read(end + 1, links->links[peer].key, NULL);
}

/* ---- hellos ---- */

static void write_hello(unsigned char hello[HELLO_SIZE], int from, int to,
	const unsigned char key[16])
{
	memcpy(hello, MAGIC, FROM_AT);
	bytes_put_le32(hello + FROM_AT, (uint32_t)from);
	bytes_put_le32(hello + TO_AT, (uint32_t)to);
	bytes_put_le64(hello + TAG_AT, siphash(key, hello, TAG_AT));
}

/* The rank that says a valid hello; -1: not one. */
static int read_hello(const struct comm_links *links, const unsigned char hello[HELLO_SIZE])
{
	unsigned char wanted[HELLO_SIZE];
	uint32_t from = bytes_le32(hello + FROM_AT);
	if (from <= (uint32_t)links->rank || from >= (uint32_t)links->size
		|| links->links[from].fd >= 0)
		return -1;
	write_hello(wanted, (int)from, links->rank, links->key);
	return memcmp(hello, wanted, HELLO_SIZE) == 0 ? (int)from : -1;
}

/* The lowest rank that is not connected with this one yet; -1: all are. */
static int missing(const struct comm_links *links)
{
	for (int peer = 0; peer < links->size; peer++)
		if (peer != links->rank && !links->links[peer].greeted)
			return peer;
	return -1;
}

/* Sends the rest of the hello to a lower rank, as far as the connection takes it. False with errno
 * when the connection failed. */
static bool say_hello(struct comm_links *links, int peer)
{
	struct link *link = &links->links[peer];
	unsigned char hello[HELLO_SIZE];
	write_hello(hello, links->rank, peer, link->key);
	ssize_t sent =
		send(link->fd, hello + link->sent, sizeof hello - link->sent, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (sent < 0)
		return errno == EAGAIN || errno == EINTR;
	link->sent += (size_t)sent;
	link->greeted = link->sent == sizeof hello;
	return true;
}

/* The word must not wait until the hello before it is acknowledged. */
static void set_no_delay(int fd)
{
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int) { 1 }, sizeof(int));
}

/* Starts to connect with a lower rank. */
static bool begin_link(struct comm_links *links, int peer)
{
	struct link *link = &links->links[peer];
	link->fd = socket(link->at.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (link->fd < 0)
		return false;
	set_no_delay(link->fd);
	int rc = connect(link->fd, &link->at.any, address_size(&link->at));
	return (rc == 0 || errno == EINPROGRESS) && say_hello(links, peer);
}

/* ---- strangers ---- */

static void drop_stranger(struct stranger *stranger)
{
	close(stranger->fd);
	stranger->fd = -1;
}

/* Takes what has come of a hello, and not a byte more: what follows it are frames. */
static void hear_stranger(struct comm_links *links, struct stranger *stranger)
{
	ssize_t got = recv(stranger->fd, stranger->hello + stranger->have, HELLO_SIZE - stranger->have,
		MSG_DONTWAIT);
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
		int fd = acceptor_take(&links->acceptor, NULL, NULL);
		if (fd < 0)
			return;
		set_no_delay(fd);
		struct stranger *stranger = place_for_stranger(links);
		*stranger = (struct stranger) { .fd = fd, .age = links->strangers_seen++ };
		hear_stranger(links, stranger);
	}
}

/* ---- connecting ---- */

/* On rank 0: whether every other rank has said that it is connected with all. */
static bool has_heard_all(const struct comm_links *links)
{
	for (int peer = 1; peer < links->size; peer++)
		if (!links->links[peer].heard)
			return false;
	return true;
}

/* Whether this rank may send its word; rank 0 waits for that of all others. */
static bool may_tell(const struct comm_links *links)
{
	return missing(links) < 0 && (links->rank > 0 || has_heard_all(links));
}

/* The events to poll for: until the hello is sent, that it can be; then the connection's end, and
 * between rank 0 and another rank the word. */
static short awaited(const struct comm_links *links, int peer, bool may_tell_now)
{
	const struct link *link = &links->links[peer];
	bool has_words = peer == 0 || links->rank == 0;
	if (!link->greeted)
		return POLLOUT;
	return (short)(POLLRDHUP | (has_words && !link->heard ? POLLIN : 0)
		| (has_words && !link->told && may_tell_now ? POLLOUT : 0));
}

/* Waits until a connection is ready, or the deadline passes. */
static void await_news(struct comm_links *links, struct deadline deadline)
{
	struct pollfd *others = links->fds + links->size;
	bool may_tell_now = may_tell(links);
	double seconds = deadline_left(deadline);
	for (int peer = 0; peer < links->size; peer++)
		links->fds[peer] = (struct pollfd) { .fd = links->links[peer].fd,
			.events = awaited(links, peer, may_tell_now) };
	for (int i = 0; i < STRANGERS_MAX; i++)
		others[i] = (struct pollfd) { .fd = links->strangers[i].fd, .events = POLLIN };
	others[STRANGERS_MAX] =
		(struct pollfd) { .fd = acceptor_poll(&links->acceptor, &seconds), .events = POLLIN };
	poll(links->fds, FDS(links->size), (int)(seconds * 1000) + 1);
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

/* If the word can't be sent any more, the first operation will find the peer missing. */
static void tell(struct link *link)
{
	if (!link->told)
		link->told =
			send(link->fd, &(unsigned char) { ALL_ARE_CONNECTED }, 1, MSG_DONTWAIT | MSG_NOSIGNAL)
				== 1
			|| (errno != EAGAIN && errno != EINTR);
}

/* False: something other than the word has come. */
static bool hear(struct link *link)
{
	unsigned char word = ALL_ARE_CONNECTED;
	if (!link->heard && link->greeted)
		link->heard = recv(link->fd, &word, 1, MSG_DONTWAIT) == 1;
	return word == ALL_ARE_CONNECTED;
}

/* On rank 0: 1 when every rank is connected with all and was told that all are, else 0; -1: *faulty
 * has sent something else. */
static int all_are_told(struct comm_links *links, int *faulty)
{
	bool all = true;
	for (*faulty = 1; *faulty < links->size; ++*faulty)
		if (!hear(&links->links[*faulty]))
			return -1;
	if (!may_tell(links))
		return 0;
	for (int peer = 1; peer < links->size; peer++) {
		tell(&links->links[peer]);
		all = all && links->links[peer].told;
	}
	return all;
}

/* The same on every rank. Others than rank 0 believe only rank 0: any other peer may have heard its
 * word and left already. */
static int all_connected(struct comm_links *links, int *faulty)
{
	struct link *zero = &links->links[0];
	if (links->rank == 0)
		return all_are_told(links, faulty);
	if (!may_tell(links))
		return 0;
	tell(zero);
	*faulty = 0;
	return hear(zero) ? zero->heard : -1;
}

/* Whether the end of this connection ends the attempt: not when the peer was told, or may have
 * been. */
static bool is_needed(const struct comm_links *links, int peer)
{
	return links->rank == 0 ? !links->links[peer].told : peer == 0 || missing(links) >= 0;
}

/* Whether poll reported the end of the connection. On rank 0's a word may still be unread. */
static bool has_ended(const struct comm_links *links, int peer)
{
	char next;
	if (!(links->fds[peer].revents & (POLLERR | POLLHUP | POLLRDHUP)))
		return false;
	if (peer > 0 || missing(links) >= 0)
		return true;
	ssize_t got = recv(links->links[peer].fd, &next, 1, MSG_PEEK | MSG_DONTWAIT);
	return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

/* Where a connection existed, its end means that the peer gave up. */
static enum comm_links_end lose(const struct comm_links *links, int peer, int error,
	struct err *err)
{
	if (links->links[peer].greeted || error == 0 || error == ECONNRESET || error == EPIPE) {
		err_fail(err, EXIT_LOST, "it closed its connection");
		return COMM_LINKS_LEFT;
	}
	err_fail(err, EXIT_LOST, "%s", strerror(error));
	return COMM_LINKS_MISSING;
}

/* Finds a peer that is gone before it was told. */
static enum comm_links_end find_lost(const struct comm_links *links, int *peer, struct err *err)
{
	int error = 0;
	for (*peer = 0; *peer < links->size; ++*peer)
		if (is_needed(links, *peer) && has_ended(links, *peer))
			break;
	if (*peer == links->size)
		return COMM_LINKS_ALL;
	getsockopt(links->links[*peer].fd, SOL_SOCKET, SO_ERROR, &error, &(socklen_t) { sizeof error });
	return lose(links, *peer, error, err);
}

/* Sends hellos where poll says that the connections take them. */
static enum comm_links_end greet(struct comm_links *links, int *peer, struct err *err)
{
	for (*peer = 0; *peer < links->rank; ++*peer)
		if (!links->links[*peer].greeted && links->fds[*peer].revents == POLLOUT
			&& !say_hello(links, *peer))
			return lose(links, *peer, errno, err);
	return COMM_LINKS_ALL;
}

/* Whether this rank knows itself which peer is missing; others may only wait for this rank. */
static bool knows_more(const struct comm_links *links)
{
	return links->rank > 0 && missing(links) >= 0;
}

static enum comm_links_end time_is_over(const struct comm_links *links, double seconds, int *peer,
	struct err *err)
{
	*peer = missing(links);
	if (*peer >= 0) {
		err_fail(err, EXIT_LOST, "%s within %g s",
			*peer < links->rank ? "no answer" : "it did not connect", seconds);
		return links->rank > 0 ? COMM_LINKS_MISSING : COMM_LINKS_LEFT;
	}
	bool all_heard = may_tell(links);
	for (*peer = links->rank == 0;
		 *peer && (all_heard ? links->links[*peer].told : links->links[*peer].heard); ++*peer)
		;
	err_fail(err, EXIT_LOST, "it was not connected with all ranks within %g s", seconds);
	return COMM_LINKS_LEFT;
}

/* A rank that gives up first says hello wherever it was about to: a peer doesn't notice the end of
 * a connection that has no name. */
static void say_last_hellos(struct comm_links *links)
{
	struct deadline deadline = deadline_in(LAST_HELLO_SECONDS);
	for (int left = 1; left && !deadline_passed(deadline);) {
		left = 0;
		for (int peer = 0; peer < links->rank; peer++) {
			struct link *link = &links->links[peer];
			bool wanted =
				link->fd >= 0 && !link->greeted && say_hello(links, peer) && !link->greeted;
			links->fds[peer] = (struct pollfd) { .fd = wanted ? link->fd : -1, .events = POLLOUT };
			left += wanted;
		}
		if (left)
			poll(links->fds, (nfds_t)links->rank, (int)(deadline_left(deadline) * 1000) + 1);
	}
}

static enum comm_links_end begin_links(struct comm_links *links, int *peer, struct err *err)
{
	for (*peer = 0; *peer < links->rank; ++*peer)
		if (!begin_link(links, *peer)) {
			enum comm_links_end end = lose(links, *peer, errno, err);
			say_last_hellos(links);
			return end;
		}
	return COMM_LINKS_ALL;
}

/* Closes all connections, which tells the peers that wait for this rank. */
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

/* Waits once, unless a rank is lost or the time is over, and then takes what has come. */
static enum comm_links_end await_connections(struct comm_links *links, double begun, double seconds,
	int *peer, struct err *err)
{
	/* A rank that misses a peer gives up earlier, so that its reason comes first; a rank that only
	 * waits for it gives up later. */
	struct deadline deadline = { begun + (knows_more(links) ? KNOWING_SHARE : 1) * seconds };
	enum comm_links_end end = find_lost(links, peer, err);
	if (end == COMM_LINKS_ALL && deadline_passed(deadline))
		return time_is_over(links, seconds, peer, err);
	if (end == COMM_LINKS_ALL) {
		await_news(links, deadline);
		meet_strangers(links);
		end = greet(links, peer, err);
	}
	if (end != COMM_LINKS_ALL)
		say_last_hellos(links);
	return end;
}

enum comm_links_end comm_links_connect(struct comm_links *links, double seconds, int *peer,
	struct err *err)
{
	double begun = clock_now();
	int all = 0;
	enum comm_links_end end = begin_links(links, peer, err);
	while (end == COMM_LINKS_ALL && (all = all_connected(links, peer)) == 0)
		end = await_connections(links, begun, seconds, peer, err);
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
