/* SPDX-License-Identifier: Apache-2.0 */
/* The connections of a bootstrap. A message has no sender until its tag proves one, and no put
 * value is sent until the other end has proved that it is rank 0. */
#include "config.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/descriptors.h"
#include "common/listen.h"
#include "common/node_address.h"
#include "launch/bootstrap_private.h"

#define CONNECT_SECONDS 0.5
#define FIRST_PAUSE 0.001 /* seconds between two attempts to reach rank 0 */
#define LONGEST_PAUSE 0.1
#define PAUSE_GROWTH 1.1

void bootstrap_close_link(struct bootstrap *bootstrap, struct link *link)
{
	bootstrap->lost |= bootstrap->rank > 0 || link->rank >= 0;
	close(link->fd);
	free(link->in);
	*link = (struct link) { .fd = -1, .rank = -1 };
}

bool bootstrap_open_link(struct bootstrap *bootstrap, struct link *link, int fd)
{
	socket_between_ranks(fd);
	*link = (struct link) { .fd = fd,
		.rank = -1,
		.age = bootstrap->links_seen++,
		.want = BOOTSTRAP_GREETING_SIZE,
		.origin = bootstrap->secret,
		.in = malloc(BOOTSTRAP_HEAD_SIZE) };
	if (!link->in
		|| getrandom(&link->number, sizeof link->number, 0) != (ssize_t)sizeof link->number) {
		bootstrap_close_link(bootstrap, link);
		return false;
	}
	if (bootstrap->rank > 0) {
		bootstrap_challenge_write(link->greeting, bootstrap->secret.session, link->number);
		link->greeting_left = BOOTSTRAP_GREETING_SIZE;
	}
	return true;
}

/* A challenge has arrived, which is answered, or the answer to this rank's challenge. */
static bool take_greeting(const struct bootstrap *bootstrap, struct link *link)
{
	uint64_t challenge;
	link->greeted = true;
	if (bootstrap->rank > 0)
		return bootstrap_proof_read(link->in, &bootstrap->secret, link->number,
			&link->origin.session);
	if (!bootstrap_challenge_read(link->in, bootstrap->secret.session, &challenge))
		return false;
	bootstrap_proof_write(link->greeting, &bootstrap->secret, challenge, link->number);
	link->greeting_left = BOOTSTRAP_GREETING_SIZE;
	link->origin.session = link->number;
	return true;
}

/* The secret that authenticates the messages received on this link. */
static const struct bootstrap_secret *origin_of(const struct bootstrap *bootstrap,
	const struct link *link)
{
	return bootstrap->rank == 0 ? &link->origin : &bootstrap->secret;
}

/* Whether a message of this sender is due now. On rank 0 it may be the link's first. */
static bool is_due(struct bootstrap *bootstrap, struct link *link,
	const struct bootstrap_head *head)
{
	int rank = head->rank;
	if (bootstrap->rank > 0)
		return rank == 0 && head->fence == bootstrap->complete
			&& head->fence < bootstrap->come[bootstrap->rank];
	if (link->rank < 0 && rank > 0 && bootstrap->come[rank] == 0 && head->fence == 0) {
		for (int i = 0; i < BOOTSTRAP_LINKS_MAX; i++)
			if (bootstrap->links[i].fd >= 0 && bootstrap->links[i].rank == rank)
				return false;
		link->rank = rank;
	}
	return rank == link->rank && head->fence == bootstrap->come[rank];
}

/* A whole message has arrived. */
static bool take_message(struct bootstrap *bootstrap, struct link *link)
{
	const struct bootstrap_message message = { link->in, link->want - bootstrap_message_length(0) };
	if (!bootstrap_message_is_sealed(message.bytes, origin_of(bootstrap, link), message.size))
		return false;
	if (bootstrap->rank == 0)
		return bootstrap_take_body(bootstrap, link->rank, bootstrap_message_body(&message),
			message.size);
	if (!bootstrap_bodies_are_whole(bootstrap_message_body(&message), message.size,
			bootstrap->world_size))
		return false;
	struct round *round = bootstrap->rounds[bootstrap->complete];
	round->all = message;
	free(round->own.bytes);
	round->own.bytes = NULL;
	bootstrap_complete_round(bootstrap);
	link->in = malloc(BOOTSTRAP_HEAD_SIZE);
	return link->in;
}

/* A head has arrived: makes room for the rest. */
static bool take_head(struct bootstrap *bootstrap, struct link *link)
{
	const size_t world = (size_t)bootstrap->world_size;
	size_t most = bootstrap->rank == 0 ? BOOTSTRAP_BYTES_MAX
									   : bootstrap_bodies_size(world * BOOTSTRAP_BYTES_MAX, world);
	struct bootstrap_head head;
	if (!bootstrap_message_head(link->in, origin_of(bootstrap, link), bootstrap->world_size, most,
			&head)
		|| !is_due(bootstrap, link, &head))
		return false;
	link->want = bootstrap_message_length(head.size);
	unsigned char *grown = realloc(link->in, link->want);
	if (grown)
		link->in = grown;
	return grown;
}

bool bootstrap_receive(struct bootstrap *bootstrap, struct link *link)
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
		if (link->greeted && link->want == BOOTSTRAP_HEAD_SIZE) {
			if (!take_head(bootstrap, link))
				return false;
		} else {
			if (!(link->greeted ? take_message(bootstrap, link) : take_greeting(bootstrap, link)))
				return false;
			link->have = 0;
			link->want = BOOTSTRAP_HEAD_SIZE;
		}
	}
}

/* The first round whose message must not be sent yet. */
static uint32_t sendable(const struct bootstrap *bootstrap, const struct link *link)
{
	if (bootstrap->rank == 0)
		return link->rank < 0 ? 0 : bootstrap->complete;
	return link->greeted ? bootstrap->come[bootstrap->rank] : 0;
}

bool bootstrap_has_to_send(const struct bootstrap *bootstrap, const struct link *link)
{
	return link->greeting_left > 0 || link->out < sendable(bootstrap, link);
}

/* False with errno, as send() sets it. */
static bool send_greeting(struct link *link)
{
	while (link->greeting_left > 0) {
		const unsigned char *at = link->greeting + BOOTSTRAP_GREETING_SIZE - link->greeting_left;
		ssize_t sent = send(link->fd, at, link->greeting_left, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (sent < 0)
			return false;
		link->greeting_left -= (size_t)sent;
	}
	return true;
}

bool bootstrap_send(struct bootstrap *bootstrap, struct link *link)
{
	if (!send_greeting(link))
		return errno == EAGAIN || errno == EINTR;
	while (link->out < sendable(bootstrap, link)) {
		struct round *round = bootstrap->rounds[link->out];
		const struct bootstrap_message *message = bootstrap->rank == 0 ? &round->all : &round->own;
		if (bootstrap->rank > 0 && link->sent == 0)
			bootstrap_message_seal(message, &link->origin, bootstrap->rank, link->out);
		size_t left = bootstrap_message_length(message->size) - link->sent;
		ssize_t sent =
			send(link->fd, message->bytes + link->sent, left, MSG_DONTWAIT | MSG_NOSIGNAL);
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

/* The oldest connection that has not said which rank it is, or NULL, and the number of such
 * connections. */
static struct link *oldest_stranger(struct bootstrap *bootstrap, int *count)
{
	struct link *oldest = NULL;
	*count = 0;
	for (int i = 0; i < BOOTSTRAP_LINKS_MAX; i++) {
		struct link *link = &bootstrap->links[i];
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
		bootstrap_close_link(arg, oldest);
	return oldest;
}

/* There always is one, since each rank connects once. */
static struct link *free_link(struct bootstrap *bootstrap)
{
	struct link *link = bootstrap->links;
	while (link->fd >= 0)
		link++;
	return link;
}

void bootstrap_take_connections(struct bootstrap *bootstrap)
{
	for (int i = 0; i < BOOTSTRAP_STRANGERS_MAX; i++) {
		int strangers, fd = acceptor_take(&bootstrap->acceptor, make_room, bootstrap);
		if (fd < 0)
			return;
		oldest_stranger(bootstrap, &strangers);
		if (strangers == BOOTSTRAP_STRANGERS_MAX)
			make_room(bootstrap);
		bootstrap_open_link(bootstrap, free_link(bootstrap), fd);
	}
}

/* ---- any other rank ---- */

/* Waits `seconds`, or until `fd` can be written. Returns false if the owner has ended the
 * bootstrap. */
static bool pause_for(struct bootstrap *bootstrap, int fd, double seconds)
{
	struct pollfd fds[] = { { .fd = bootstrap->wake, .events = POLLIN },
		{ .fd = fd, .events = POLLOUT } };
	struct deadline deadline = deadline_in(seconds);
	uint64_t count;
	bool over = false;
	while (!over && !fds[1].revents && !deadline_passed(deadline)) {
		poll(fds, 2, (int)(deadline_left(deadline) * 1000) + 1);
		eventfd_read(bootstrap->wake, &count);
		pthread_mutex_lock(&bootstrap->lock);
		over = bootstrap->over;
		pthread_mutex_unlock(&bootstrap->lock);
	}
	return !over;
}

static int connect_to(struct bootstrap *bootstrap, const struct addrinfo *at)
{
	int error = 0,
		fd = descriptors_own(socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
	socklen_t length = sizeof error;
	if (fd < 0)
		return -1;
	if (connect(fd, at->ai_addr, at->ai_addrlen) == 0)
		return fd;
	if (errno == EINPROGRESS && pause_for(bootstrap, fd, CONNECT_SECONDS)
		&& getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == 0
		&& getpeername(fd, (struct sockaddr *)&(struct sockaddr_storage) { 0 },
			   &(socklen_t) { sizeof(struct sockaddr_storage) })
			== 0)
		return fd;
	close(fd);
	return -1;
}

int bootstrap_look_for_rank_0(struct bootstrap *bootstrap, double seconds)
{
	const struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM };
	struct addrinfo *found = NULL;
	char port[12];
	int fd = -1;
	struct deadline deadline = deadline_in(seconds);
	double pause = FIRST_PAUSE;
	bool go_on = true;
	snprintf(port, sizeof port, "%d", bootstrap->port);
	while (fd < 0 && go_on) {
		if (!found
			&& node_address(bootstrap->node[0] ? bootstrap->node : "127.0.0.1", port, &hints,
				   &found)
				!= 0)
			found = NULL;
		for (struct addrinfo *at = found; at && fd < 0; at = at->ai_next)
			fd = connect_to(bootstrap, at);
		go_on = fd >= 0
			|| (!deadline_passed(deadline)
				&& pause_for(bootstrap, -1, found ? pause : LONGEST_PAUSE));
		pause = pause * PAUSE_GROWTH < LONGEST_PAUSE ? pause * PAUSE_GROWTH : LONGEST_PAUSE;
	}
	if (found)
		freeaddrinfo(found);
	return fd;
}
