/* SPDX-License-Identifier: Apache-2.0 */
/* One thread a rank moves the messages. Rank 0's has a link with each rank, and sends when the last has come; any other rank's has
 * one link, with rank 0. What each rank came with stays where it is until the end: it can be asked for at any time. */
#include "config.h"

#include "launch/gathering.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/bytes.h"
#include "common/clock.h"
#include "common/listen.h"
#include "common/siphash.h"
#include "launch/run_key.h"

#define MAGIC "MGA1"
#define HEAD_SIZE 32
#define TAG_SIZE 8
#define TAG_AT (HEAD_SIZE - TAG_SIZE)
#define STRANGERS_MAX 64 /* connections to rank 0 that have not said who they are */
#define LINKS_MAX (GATHERING_WORLD_MAX + STRANGERS_MAX)
#define CONNECT_SECONDS 0.5
#define FIRST_PAUSE 0.001 /* between two looks for rank 0 */
#define LONGEST_PAUSE 0.1
#define PAUSE_GROWTH 1.1

struct message {
	unsigned char *bytes; /* head, body and tag */
	size_t size;          /* of the body */
};

struct body {
	unsigned char *bytes;
	size_t size;
};

/* One fence. */
struct round {
	struct body *bodies;     /* on rank 0, until all have come: of each rank */
	struct message own, all; /* what any other rank sends, until it is answered; what rank 0 sends */
	void (*met)(void *arg, bool all); /* NULL: this rank has not come, or was told */
	void *arg;
};

struct link {
	int fd, rank;    /* -1: none; -1: it has not said */
	unsigned long age;
	unsigned char *in;
	size_t have, want;
	uint32_t out;    /* the round whose message is sent to it */
	size_t sent;
};

struct gathering {
	int rank, world_size, port, listener, wake;
	uint64_t run;
	unsigned char key[16];
	char node[256]; /* of rank 0; "": this one */
	unsigned long links_seen;
	struct link links[LINKS_MAX];

	pthread_mutex_t lock; /* over what follows, and the links once they are made */
	int references;       /* the owner's and the thread's */
	bool over, lost;
	struct round **rounds;
	uint32_t round_count;
	uint32_t come[GATHERING_WORLD_MAX]; /* of each rank, the fences that it has come to; of others than rank 0 only the own */
	uint32_t complete, told;            /* rounds that all have come to; that `met` was called for */
};

/* ---- messages ---- */

static unsigned char *make_message(size_t size)
{
	return malloc(HEAD_SIZE + size + TAG_SIZE);
}

/* Writes head and tags around the body. */
static void seal(const struct gathering *gathering, const struct message *message, uint32_t fence)
{
	unsigned char *bytes = message->bytes;
	memcpy(bytes, MAGIC, 4);
	bytes_put_le64(bytes + 4, gathering->run);
	bytes_put_le32(bytes + 12, (uint32_t)gathering->rank);
	bytes_put_le32(bytes + 16, fence);
	bytes_put_le32(bytes + 20, (uint32_t)message->size);
	bytes_put_le64(bytes + TAG_AT, siphash(gathering->key, bytes, TAG_AT));
	bytes_put_le64(bytes + HEAD_SIZE + message->size, siphash(gathering->key, bytes, HEAD_SIZE + message->size));
}

static bool is_head(const struct gathering *gathering, const unsigned char *head)
{
	size_t most = gathering->rank == 0 ? GATHERING_BYTES_MAX : (size_t)gathering->world_size * (4 + GATHERING_BYTES_MAX);
	return memcmp(head, MAGIC, 4) == 0 && bytes_le64(head + 4) == gathering->run &&
		bytes_le32(head + 12) < (uint32_t)gathering->world_size && bytes_le32(head + 20) <= most &&
		bytes_le64(head + TAG_AT) == siphash(gathering->key, head, TAG_AT);
}

/* Whether rank 0's body is one length and body a rank. */
static bool is_whole(const struct gathering *gathering, const unsigned char *body, size_t size)
{
	size_t at = 0;
	for (int rank = 0; rank < gathering->world_size; rank++) {
		if (size - at < 4 || size - at - 4 < bytes_le32(body + at))
			return false;
		at += 4 + bytes_le32(body + at);
	}
	return at == size;
}

/* ---- rounds; the lock is held ---- */

static struct round *round_of(struct gathering *gathering, uint32_t fence)
{
	if (fence < gathering->round_count)
		return gathering->rounds[fence];
	struct round **grown = realloc(gathering->rounds, (fence + 1) * sizeof *grown);
	if (!grown)
		return NULL;
	gathering->rounds = grown;
	struct round *round = grown[fence] = calloc(1, sizeof *round);
	gathering->round_count += round != NULL;
	return round;
}

static bool all_have_come(const struct gathering *gathering, uint32_t fence)
{
	for (int rank = 0; rank < gathering->world_size; rank++)
		if (gathering->come[rank] <= fence)
			return false;
	return true;
}

static void free_bodies(const struct gathering *gathering, struct round *round)
{
	for (int rank = 0; rank < gathering->world_size && round->bodies; rank++)
		free(round->bodies[rank].bytes);
	free(round->bodies);
	round->bodies = NULL;
}

/* Rank 0: what all have come with, as one message. */
static bool put_together(const struct gathering *gathering, struct round *round, uint32_t fence)
{
	size_t size = 0;
	for (int rank = 0; rank < gathering->world_size; rank++)
		size += 4 + round->bodies[rank].size;
	round->all = (struct message){ make_message(size), size };
	unsigned char *at = round->all.bytes ? round->all.bytes + HEAD_SIZE : NULL;
	for (int rank = 0; rank < gathering->world_size && at; rank++) {
		const struct body *body = &round->bodies[rank];
		bytes_put_le32(at, (uint32_t)body->size);
		memcpy(at + 4, body->bytes, body->size);
		at += 4 + body->size;
	}
	if (!at)
		return false;
	seal(gathering, &round->all, fence);
	free_bodies(gathering, round);
	return true;
}

/* Takes a body, of `size` bytes, with which a rank has come to its next fence. */
static bool take_body(struct gathering *gathering, int rank, const unsigned char *body, size_t size)
{
	struct round *round = round_of(gathering, gathering->come[rank]);
	if (round && !round->bodies)
		round->bodies = calloc((size_t)gathering->world_size, sizeof *round->bodies);
	unsigned char *copy = round && round->bodies ? malloc(size + 1) : NULL;
	if (!copy)
		return false;
	if (size)
		memcpy(copy, body, size);
	round->bodies[rank] = (struct body){ copy, size };
	gathering->come[rank]++;
	while (all_have_come(gathering, gathering->complete)) {
		if (!put_together(gathering, gathering->rounds[gathering->complete], gathering->complete))
			return false;
		gathering->complete++;
	}
	return true;
}

static void tell(struct gathering *gathering, uint32_t fence, bool all)
{
	struct round *round = gathering->rounds[fence];
	if (round->met)
		round->met(round->arg, all);
	round->met = NULL;
}

static bool has_sent_all(const struct gathering *gathering)
{
	for (int i = 0; i < LINKS_MAX && gathering->rank == 0; i++)
		if (gathering->links[i].fd >= 0 && gathering->links[i].rank >= 0 && gathering->links[i].out < gathering->complete)
			return false;
	return true;
}

/* Rank 0 may end its process as soon as it is told, so it has to have sent everything. */
static void tell_all(struct gathering *gathering)
{
	while (gathering->told < gathering->complete && has_sent_all(gathering))
		tell(gathering, gathering->told++, true);
	for (uint32_t fence = gathering->complete; fence < gathering->round_count && gathering->lost; fence++)
		tell(gathering, fence, false);
}

/* ---- links ---- */

static void close_link(struct gathering *gathering, struct link *link)
{
	gathering->lost |= gathering->rank > 0 || link->rank >= 0;
	close(link->fd);
	free(link->in);
	*link = (struct link){ .fd = -1, .rank = -1 };
}

static bool open_link(struct gathering *gathering, struct link *link, int fd)
{
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int));
	*link = (struct link){ .fd = fd, .rank = -1, .age = gathering->links_seen++, .want = HEAD_SIZE };
	link->in = malloc(HEAD_SIZE);
	if (!link->in)
		close_link(gathering, link);
	return link->fd >= 0;
}

/* Whether a message of this length from this sender is due now; on rank 0 it may be a link's first. */
static bool is_due(struct gathering *gathering, struct link *link)
{
	int rank = (int)bytes_le32(link->in + 12);
	uint32_t fence = bytes_le32(link->in + 16);
	if (gathering->rank > 0)
		return rank == 0 && fence == gathering->complete && fence < gathering->come[gathering->rank];
	if (link->rank < 0 && rank > 0 && gathering->come[rank] == 0 && fence == 0) {
		for (int i = 0; i < LINKS_MAX; i++)
			if (gathering->links[i].fd >= 0 && gathering->links[i].rank == rank)
				return false;
		link->rank = rank;
	}
	return rank == link->rank && fence == gathering->come[rank];
}

/* A whole message is there. */
static bool take_message(struct gathering *gathering, struct link *link)
{
	size_t size = link->want - HEAD_SIZE - TAG_SIZE;
	if (bytes_le64(link->in + HEAD_SIZE + size) != siphash(gathering->key, link->in, HEAD_SIZE + size))
		return false;
	if (gathering->rank == 0)
		return take_body(gathering, link->rank, link->in + HEAD_SIZE, size);
	if (!is_whole(gathering, link->in + HEAD_SIZE, size))
		return false;
	struct round *round = gathering->rounds[gathering->complete++];
	round->all = (struct message){ link->in, size };
	free(round->own.bytes);
	round->own.bytes = NULL;
	link->in = malloc(HEAD_SIZE);
	return link->in;
}

/* The head is there: makes room for the rest. */
static bool take_head(struct gathering *gathering, struct link *link)
{
	if (!is_head(gathering, link->in) || !is_due(gathering, link))
		return false;
	link->want = HEAD_SIZE + bytes_le32(link->in + 20) + TAG_SIZE;
	unsigned char *grown = realloc(link->in, link->want);
	if (grown)
		link->in = grown;
	return grown;
}

/* Takes what has come; false: the connection is of no more use. */
static bool receive(struct gathering *gathering, struct link *link)
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
		if (link->want == HEAD_SIZE) {
			if (!take_head(gathering, link))
				return false;
		} else {
			if (!take_message(gathering, link))
				return false;
			link->have = 0;
			link->want = HEAD_SIZE;
		}
	}
}

/* The rounds for which there is something to send. */
static uint32_t sendable(const struct gathering *gathering, const struct link *link)
{
	if (gathering->rank == 0)
		return link->rank < 0 ? 0 : gathering->complete;
	return gathering->come[gathering->rank];
}

static bool send_due(struct gathering *gathering, struct link *link)
{
	while (link->out < sendable(gathering, link)) {
		struct round *round = gathering->rounds[link->out];
		const struct message *message = gathering->rank == 0 ? &round->all : &round->own;
		if (gathering->rank > 0 && link->sent == 0)
			seal(gathering, message, link->out);
		size_t left = HEAD_SIZE + message->size + TAG_SIZE - link->sent;
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

/* The place of a new connection, which may be that of the oldest that has not said who it is. */
static struct link *place_for_stranger(struct gathering *gathering)
{
	struct link *oldest = NULL, *none = NULL;
	int strangers = 0;
	for (int i = 0; i < LINKS_MAX; i++) {
		struct link *link = &gathering->links[i];
		if (link->fd < 0)
			none = link;
		else if (link->rank < 0) {
			strangers++;
			if (!oldest || link->age < oldest->age)
				oldest = link;
		}
	}
	if (strangers < STRANGERS_MAX)
		return none;
	close_link(gathering, oldest);
	return oldest;
}

static void take_connections(struct gathering *gathering)
{
	for (int i = 0; i < STRANGERS_MAX; i++) {
		int fd = accept4(gathering->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd < 0)
			return;
		open_link(gathering, place_for_stranger(gathering), fd);
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

/* A connection with rank 0's port, or -1 when there is no time for it any more. */
static int look_for_rank_0(struct gathering *gathering)
{
	const struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM };
	struct addrinfo *found = NULL;
	char port[12];
	int fd = -1;
	double pause = FIRST_PAUSE;
	bool go_on = true;
	snprintf(port, sizeof port, "%d", gathering->port);
	while (fd < 0 && go_on) {
		if (!found && getaddrinfo(gathering->node[0] ? gathering->node : "127.0.0.1", port, &hints, &found) != 0)
			found = NULL;
		for (struct addrinfo *at = found; at && fd < 0; at = at->ai_next)
			fd = connect_to(gathering, at);
		go_on = fd >= 0 || pause_for(gathering, -1, found ? pause : LONGEST_PAUSE);
		pause = pause * PAUSE_GROWTH < LONGEST_PAUSE ? pause * PAUSE_GROWTH : LONGEST_PAUSE;
	}
	if (found)
		freeaddrinfo(found);
	return fd;
}

/* ---- the thread ---- */

/* Waits for something to do. */
static void await_work(struct gathering *gathering)
{
	struct pollfd fds[LINKS_MAX + 2] = { { .fd = gathering->wake, .events = POLLIN },
		{ .fd = gathering->listener, .events = POLLIN } };
	uint64_t count;
	int used = 2;
	pthread_mutex_lock(&gathering->lock);
	for (int i = 0; i < LINKS_MAX; i++) {
		const struct link *link = &gathering->links[i];
		if (link->fd >= 0)
			fds[used++] = (struct pollfd){ .fd = link->fd,
				.events = (short)(POLLIN | (link->out < sendable(gathering, link) ? POLLOUT : 0)) };
	}
	pthread_mutex_unlock(&gathering->lock);
	poll(fds, (nfds_t)used, -1);
	(void)!read(gathering->wake, &count, sizeof count);
}

/* Moves what can be moved; false: it is over. */
static bool work(struct gathering *gathering)
{
	pthread_mutex_lock(&gathering->lock);
	if (gathering->listener >= 0)
		take_connections(gathering);
	for (int i = 0; i < LINKS_MAX; i++)
		if (gathering->links[i].fd >= 0 && !receive(gathering, &gathering->links[i]))
			close_link(gathering, &gathering->links[i]);
	for (int i = 0; i < LINKS_MAX; i++)
		if (gathering->links[i].fd >= 0 && !send_due(gathering, &gathering->links[i]))
			close_link(gathering, &gathering->links[i]);
	tell_all(gathering);
	bool go_on = !gathering->over && (gathering->rank == 0 || !gathering->lost);
	pthread_mutex_unlock(&gathering->lock);
	return go_on;
}

static void drop(struct gathering *gathering);

static void *run_thread(void *arg)
{
	struct gathering *gathering = arg;
	if (gathering->rank > 0) {
		int fd = look_for_rank_0(gathering);
		if (fd >= 0)
			open_link(gathering, &gathering->links[0], fd);
	}
	while (work(gathering))
		await_work(gathering);
	pthread_mutex_lock(&gathering->lock);
	gathering->lost = true;
	tell_all(gathering);
	pthread_mutex_unlock(&gathering->lock);
	drop(gathering);
	return NULL;
}

/* ---- begin and end ---- */

static void release(struct gathering *gathering)
{
	for (int i = 0; i < LINKS_MAX; i++)
		if (gathering->links[i].fd >= 0)
			close_link(gathering, &gathering->links[i]);
	gathering->lost = true;
	tell_all(gathering);
	for (uint32_t fence = 0; fence < gathering->round_count; fence++) {
		struct round *round = gathering->rounds[fence];
		free_bodies(gathering, round);
		free(round->own.bytes);
		free(round->all.bytes);
		free(round);
	}
	if (gathering->listener >= 0)
		close(gathering->listener);
	if (gathering->wake >= 0)
		close(gathering->wake);
	pthread_mutex_destroy(&gathering->lock);
	free(gathering->rounds);
	free(gathering);
}

static void drop(struct gathering *gathering)
{
	pthread_mutex_lock(&gathering->lock);
	int left = --gathering->references;
	pthread_mutex_unlock(&gathering->lock);
	if (left == 0)
		release(gathering);
}

static int listen_as_rank_0(struct gathering *gathering, struct err *err)
{
	int got;
	gathering->listener = listen_any(gathering->port, &got);
	if (gathering->listener < 0 || fcntl(gathering->listener, F_SETFL, O_NONBLOCK) < 0)
		return err_set(err, "rendezvous: couldn't listen on port %d (TCP): %m", gathering->port);
	return 0;
}

struct gathering *gathering_begin(const struct gathering_plan *plan, struct err *err)
{
	struct gathering *gathering = plan->world_size <= GATHERING_WORLD_MAX ? calloc(1, sizeof *gathering) : NULL;
	if (!gathering) {
		err_set(err, "rendezvous: couldn't gather %d ranks: more than %d, or no memory", plan->world_size, GATHERING_WORLD_MAX);
		return NULL;
	}
	uint64_t run = run_number(plan->run);
	*gathering = (struct gathering){ .rank = plan->rank, .world_size = plan->world_size, .run = run, .port = run_port(run, 0),
		.listener = -1, .references = 1, .wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) };
	pthread_mutex_init(&gathering->lock, NULL);
	for (int i = 0; i < LINKS_MAX; i++)
		gathering->links[i] = (struct link){ .fd = -1, .rank = -1 };
	if (plan->node)
		snprintf(gathering->node, sizeof gathering->node, "%s", plan->node);
	if (gathering->wake < 0)
		err_set(err, "rendezvous: couldn't gather the ranks: no event: %m");
	else if (plan->rank > 0 || listen_as_rank_0(gathering, err) == 0)
		return gathering;
	release(gathering);
	return NULL;
}

void gathering_set_key(struct gathering *gathering, const unsigned char key[16])
{
	pthread_t thread;
	sigset_t all, old;
	memcpy(gathering->key, key, sizeof gathering->key);
	gathering->references++;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	bool started = pthread_create(&thread, NULL, run_thread, gathering) == 0;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (started) {
		pthread_detach(thread);
		return;
	}
	pthread_mutex_lock(&gathering->lock);
	gathering->references--;
	gathering->lost = true;
	tell_all(gathering);
	pthread_mutex_unlock(&gathering->lock);
}

static void wake(struct gathering *gathering)
{
	(void)!write(gathering->wake, &(uint64_t){ 1 }, sizeof(uint64_t));
}

/* Rank 0 takes what it comes with as it takes the others'; they keep theirs as the message that they will send. */
static bool come_with(struct gathering *gathering, struct round *round, const void *bytes, size_t size)
{
	if (size > GATHERING_BYTES_MAX)
		return false;
	if (gathering->rank == 0)
		return take_body(gathering, 0, bytes, size);
	round->own = (struct message){ make_message(size), size };
	if (!round->own.bytes)
		return false;
	if (size)
		memcpy(round->own.bytes + HEAD_SIZE, bytes, size);
	gathering->come[gathering->rank]++;
	return true;
}

void gathering_come(struct gathering *gathering, const void *bytes, size_t size, void (*met)(void *arg, bool all), void *arg)
{
	pthread_mutex_lock(&gathering->lock);
	struct round *round = gathering->lost ? NULL : round_of(gathering, gathering->come[gathering->rank]);
	if (round) {
		round->met = met;
		round->arg = arg;
		gathering->lost |= !come_with(gathering, round, bytes, size);
	} else {
		gathering->lost = true;
		met(arg, false);
	}
	tell_all(gathering);
	pthread_mutex_unlock(&gathering->lock);
	wake(gathering);
}

uint32_t gathering_complete(struct gathering *gathering)
{
	pthread_mutex_lock(&gathering->lock);
	uint32_t complete = gathering->complete;
	pthread_mutex_unlock(&gathering->lock);
	return complete;
}

const unsigned char *gathering_bytes(struct gathering *gathering, uint32_t fence, int rank, size_t *size)
{
	pthread_mutex_lock(&gathering->lock);
	const unsigned char *at = fence < gathering->complete ? gathering->rounds[fence]->all.bytes + HEAD_SIZE : NULL;
	pthread_mutex_unlock(&gathering->lock);
	for (int i = 0; i < rank && at; i++)
		at += 4 + bytes_le32(at);
	*size = at ? bytes_le32(at) : 0;
	return at ? at + 4 : NULL;
}

void gathering_end(struct gathering *gathering)
{
	if (!gathering)
		return;
	pthread_mutex_lock(&gathering->lock);
	gathering->over = true;
	pthread_mutex_unlock(&gathering->lock);
	wake(gathering);
	drop(gathering);
}
