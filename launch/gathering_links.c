/* SPDX-License-Identifier: Apache-2.0 */
/* The connections of a gathering: what comes over them is nobody's until its tag says whose, and nothing that was put goes over
 * one whose other end has not shown that it is rank 0's. */
#include "config.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/node_address.h"
#include "launch/gathering_private.h"

#define CONNECT_SECONDS 0.5
#define FIRST_PAUSE 0.001 /* between two looks for rank 0 */
#define LONGEST_PAUSE 0.1
#define PAUSE_GROWTH 1.1

void gathering_close_link(struct gathering *gathering, struct link *link)
{
	gathering->lost |= gathering->rank > 0 || link->rank >= 0;
	close(link->fd);
	free(link->in);
	*link = (struct link){ .fd = -1, .rank = -1 };
}

bool gathering_open_link(struct gathering *gathering, struct link *link, int fd)
{
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int));
	*link = (struct link){ .fd = fd, .rank = -1, .age = gathering->links_seen++, .want = GATHERING_GREETING_SIZE,
		.origin = gathering->secret, .in = malloc(GATHERING_HEAD_SIZE) };
	if (!link->in || getrandom(&link->number, sizeof link->number, 0) != (ssize_t)sizeof link->number) {
		gathering_close_link(gathering, link);
		return false;
	}
	if (gathering->rank > 0) {
		gathering_challenge_write(link->greeting, gathering->secret.session, link->number);
		link->greeting_left = GATHERING_GREETING_SIZE;
	}
	return true;
}

/* A challenge is there, which is answered, or the answer to this rank's. */
static bool take_greeting(const struct gathering *gathering, struct link *link)
{
	uint64_t challenge;
	link->greeted = true;
	if (gathering->rank > 0)
		return gathering_proof_read(link->in, &gathering->secret, link->number, &link->origin.session);
	if (!gathering_challenge_read(link->in, gathering->secret.session, &challenge))
		return false;
	gathering_proof_write(link->greeting, &gathering->secret, challenge, link->number);
	link->greeting_left = GATHERING_GREETING_SIZE;
	link->origin.session = link->number;
	return true;
}

/* Of the messages that this rank receives. */
static const struct gathering_secret *origin_of(const struct gathering *gathering, const struct link *link)
{
	return gathering->rank == 0 ? &link->origin : &gathering->secret;
}

/* Whether a message of this sender is due now; on rank 0 it may be a link's first. */
static bool is_due(struct gathering *gathering, struct link *link, const struct gathering_head *head)
{
	int rank = head->rank;
	if (gathering->rank > 0)
		return rank == 0 && head->fence == gathering->complete && head->fence < gathering->come[gathering->rank];
	if (link->rank < 0 && rank > 0 && gathering->come[rank] == 0 && head->fence == 0) {
		for (int i = 0; i < GATHERING_LINKS_MAX; i++)
			if (gathering->links[i].fd >= 0 && gathering->links[i].rank == rank)
				return false;
		link->rank = rank;
	}
	return rank == link->rank && head->fence == gathering->come[rank];
}

/* A whole message is there. */
static bool take_message(struct gathering *gathering, struct link *link)
{
	const struct gathering_message message = { link->in, link->want - gathering_message_length(0) };
	if (!gathering_message_is_sealed(message.bytes, origin_of(gathering, link), message.size))
		return false;
	if (gathering->rank == 0)
		return gathering_take_body(gathering, link->rank, gathering_message_body(&message), message.size);
	if (!gathering_bodies_are_whole(gathering_message_body(&message), message.size, gathering->world_size))
		return false;
	struct round *round = gathering->rounds[gathering->complete++];
	round->all = message;
	free(round->own.bytes);
	round->own.bytes = NULL;
	link->in = malloc(GATHERING_HEAD_SIZE);
	return link->in;
}

/* The head is there: makes room for the rest. */
static bool take_head(struct gathering *gathering, struct link *link)
{
	const size_t world = (size_t)gathering->world_size;
	size_t most = gathering->rank == 0 ? GATHERING_BYTES_MAX : gathering_bodies_size(world * GATHERING_BYTES_MAX, world);
	struct gathering_head head;
	if (!gathering_message_head(link->in, origin_of(gathering, link), gathering->world_size, most, &head) ||
		!is_due(gathering, link, &head))
		return false;
	link->want = gathering_message_length(head.size);
	unsigned char *grown = realloc(link->in, link->want);
	if (grown)
		link->in = grown;
	return grown;
}

bool gathering_receive(struct gathering *gathering, struct link *link)
{
	for (;;) {
		ssize_t got = recv(link->fd, link->in + link->have, link->want - link->have, MSG_DONTWAIT);
		if (got < 0 && (errno == EAGAIN || errno == EINTR))
			return true;
		if (got <= 0)
			return false;
		link->have += (size_t)got;
		if (link->have < link->want)
			continue;
		if (link->greeted && link->want == GATHERING_HEAD_SIZE) {
			if (!take_head(gathering, link))
				return false;
		} else {
			if (!(link->greeted ? take_message(gathering, link) : take_greeting(gathering, link)))
				return false;
			link->have = 0;
			link->want = GATHERING_HEAD_SIZE;
		}
	}
}

/* Of the rounds, the first whose message is not to be sent yet. */
static uint32_t sendable(const struct gathering *gathering, const struct link *link)
{
	if (gathering->rank == 0)
		return link->rank < 0 ? 0 : gathering->complete;
	return link->greeted ? gathering->come[gathering->rank] : 0;
}

bool gathering_has_to_send(const struct gathering *gathering, const struct link *link)
{
	return link->greeting_left > 0 || link->out < sendable(gathering, link);
}

/* False with errno, as of send(). */
static bool send_greeting(struct link *link)
{
	while (link->greeting_left > 0) {
		const unsigned char *at = link->greeting + GATHERING_GREETING_SIZE - link->greeting_left;
		ssize_t sent = send(link->fd, at, link->greeting_left, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (sent < 0)
			return false;
		link->greeting_left -= (size_t)sent;
	}
	return true;
}

bool gathering_send(struct gathering *gathering, struct link *link)
{
	if (!send_greeting(link))
		return errno == EAGAIN || errno == EINTR;
	while (link->out < sendable(gathering, link)) {
		struct round *round = gathering->rounds[link->out];
		const struct gathering_message *message = gathering->rank == 0 ? &round->all : &round->own;
		if (gathering->rank > 0 && link->sent == 0)
			gathering_message_seal(message, &link->origin, gathering->rank, link->out);
		size_t left = gathering_message_length(message->size) - link->sent;
		ssize_t sent = send(link->fd, message->bytes + link->sent, left, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (sent < 0)
			return errno == EAGAIN || errno == EINTR;
		link->sent += (size_t)sent;
		if ((size_t)sent < left)
			continue;
		link->out++;
		link->sent = 0;
	}
	return true;
}

/* ---- rank 0 ---- */

/* The oldest connection that has not said who it is, and how many there are; NULL: none. */
static struct link *oldest_stranger(struct gathering *gathering, int *count)
{
	struct link *oldest = NULL;
	*count = 0;
	for (int i = 0; i < GATHERING_LINKS_MAX; i++) {
		struct link *link = &gathering->links[i];
		if (link->fd < 0 || link->rank >= 0)
			continue;
		++*count;
		if (!oldest || link->age < oldest->age)
			oldest = link;
	}
	return oldest;
}

static bool make_room(void *arg)
{
	int count;
	struct link *oldest = oldest_stranger(arg, &count);
	if (oldest)
		gathering_close_link(arg, oldest);
	return oldest;
}

/* There is one: ranks connect once. */
static struct link *free_link(struct gathering *gathering)
{
	struct link *link = gathering->links;
	while (link->fd >= 0)
		link++;
	return link;
}

void gathering_take_connections(struct gathering *gathering)
{
	for (int i = 0; i < GATHERING_STRANGERS_MAX; i++) {
		int strangers, fd = acceptor_take(&gathering->acceptor, make_room, gathering);
		if (fd < 0)
			return;
		oldest_stranger(gathering, &strangers);
		if (strangers == GATHERING_STRANGERS_MAX)
			make_room(gathering);
		gathering_open_link(gathering, free_link(gathering), fd);
	}
}

/* ---- any other rank ---- */

/* Whether it is to go on, after waiting that long for a word of its owner's, or for `fd`. */
static bool pause_for(struct gathering *gathering, int fd, double seconds)
{
	struct pollfd fds[] = { { .fd = gathering->wake, .events = POLLIN }, { .fd = fd, .events = POLLOUT } };
	struct deadline deadline = deadline_in(seconds);
	uint64_t count;
	bool over = false;
	while (!over && !fds[1].revents && !deadline_passed(deadline)) {
		poll(fds, 2, (int)(deadline_left(deadline) * 1000) + 1);
		(void)!read(gathering->wake, &count, sizeof count);
		pthread_mutex_lock(&gathering->lock);
		over = gathering->over;
		pthread_mutex_unlock(&gathering->lock);
	}
	return !over;
}

static int connect_to(struct gathering *gathering, const struct addrinfo *at)
{
	int error = 0, fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	socklen_t length = sizeof error;
	if (fd < 0)
		return -1;
	if (connect(fd, at->ai_addr, at->ai_addrlen) == 0)
		return fd;
	if (errno == EINPROGRESS && pause_for(gathering, fd, CONNECT_SECONDS) &&
		getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == 0 && getpeername(fd,
			(struct sockaddr *)&(struct sockaddr_storage){ 0 }, &(socklen_t){ sizeof(struct sockaddr_storage) }) == 0)
		return fd;
	close(fd);
	return -1;
}

int gathering_look_for_rank_0(struct gathering *gathering, double seconds)
{
	const struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM };
	struct addrinfo *found = NULL;
	char port[12];
	int fd = -1;
	struct deadline deadline = deadline_in(seconds);
	double pause = FIRST_PAUSE;
	bool go_on = true;
	snprintf(port, sizeof port, "%d", gathering->port);
	while (fd < 0 && go_on) {
		if (!found && node_address(gathering->node[0] ? gathering->node : "127.0.0.1", port, &hints, &found) != 0)
			found = NULL;
		for (struct addrinfo *at = found; at && fd < 0; at = at->ai_next)
			fd = connect_to(gathering, at);
		go_on = fd >= 0 || (!deadline_passed(deadline) && pause_for(gathering, -1, found ? pause : LONGEST_PAUSE));
		pause = pause * PAUSE_GROWTH < LONGEST_PAUSE ? pause * PAUSE_GROWTH : LONGEST_PAUSE;
	}
	if (found)
		freeaddrinfo(found);
	return fd;
}
