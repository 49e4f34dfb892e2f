/* SPDX-License-Identifier: Apache-2.0 */
/* One thread a rank moves the messages. Rank 0's has a link with each rank, and sends when the last has come; any other rank's has
 * one link, with rank 0. What each rank came with stays where it is until the end: it can be asked for at any time. */
#include "config.h"

#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/listen.h"
#include "common/thread.h"
#include "launch/gathering_private.h"
#include "launch/run_key.h"

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
		size += round->bodies[rank].size;
	round->all = gathering_message_make(gathering_bodies_size(size, (size_t)gathering->world_size));
	unsigned char *at = gathering_message_body(&round->all);
	if (!at)
		return false;
	for (int rank = 0; rank < gathering->world_size; rank++)
		at = gathering_bodies_put(at, round->bodies[rank].bytes, round->bodies[rank].size);
	gathering_message_seal(&round->all, &gathering->secret, gathering->rank, fence);
	free_bodies(gathering, round);
	return true;
}

bool gathering_take_body(struct gathering *gathering, int rank, const unsigned char *body, size_t size)
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
	for (int i = 0; i < GATHERING_LINKS_MAX && gathering->rank == 0; i++)
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

/* ---- the thread ---- */

/* Waits for something to do. */
static void await_work(struct gathering *gathering)
{
	double seconds = INFINITY;
	struct pollfd fds[GATHERING_LINKS_MAX + 2] = { { .fd = gathering->wake, .events = POLLIN },
		{ .fd = acceptor_poll(&gathering->acceptor, &seconds), .events = POLLIN } };
	uint64_t count;
	int used = 2;
	pthread_mutex_lock(&gathering->lock);
	for (int i = 0; i < GATHERING_LINKS_MAX; i++) {
		const struct link *link = &gathering->links[i];
		if (link->fd >= 0)
			fds[used++] = (struct pollfd){ .fd = link->fd,
				.events = (short)(POLLIN | (gathering_has_to_send(gathering, link) ? POLLOUT : 0)) };
	}
	pthread_mutex_unlock(&gathering->lock);
	poll(fds, (nfds_t)used, isinf(seconds) ? -1 : (int)(seconds * 1000) + 1);
	(void)!read(gathering->wake, &count, sizeof count);
}

/* Moves what can be moved; false: it is over. */
static bool work(struct gathering *gathering)
{
	pthread_mutex_lock(&gathering->lock);
	gathering_take_connections(gathering);
	for (int i = 0; i < GATHERING_LINKS_MAX; i++)
		if (gathering->links[i].fd >= 0 && !gathering_receive(gathering, &gathering->links[i]))
			gathering_close_link(gathering, &gathering->links[i]);
	for (int i = 0; i < GATHERING_LINKS_MAX; i++)
		if (gathering->links[i].fd >= 0 && !gathering_send(gathering, &gathering->links[i]))
			gathering_close_link(gathering, &gathering->links[i]);
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
		int fd = gathering->found >= 0 ? gathering->found : gathering_look_for_rank_0(gathering, INFINITY);
		gathering->found = -1;
		if (fd >= 0)
			gathering_open_link(gathering, &gathering->links[0], fd);
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
	for (int i = 0; i < GATHERING_LINKS_MAX; i++)
		if (gathering->links[i].fd >= 0)
			gathering_close_link(gathering, &gathering->links[i]);
	gathering->lost = true;
	tell_all(gathering);
	for (uint32_t fence = 0; fence < gathering->round_count; fence++) {
		struct round *round = gathering->rounds[fence];
		free_bodies(gathering, round);
		free(round->own.bytes);
		free(round->all.bytes);
		free(round);
	}
	if (gathering->acceptor.fd >= 0)
		close(gathering->acceptor.fd);
	if (gathering->found >= 0)
		close(gathering->found);
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
	gathering->acceptor.fd = listen_any(gathering->port, &got);
	if (gathering->acceptor.fd < 0 || fcntl(gathering->acceptor.fd, F_SETFL, O_NONBLOCK) < 0)
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
	*gathering = (struct gathering){ .rank = plan->rank, .world_size = plan->world_size, .secret.session = run, .port = run_port(run, 0),
		.acceptor.fd = -1, .found = -1, .references = 1, .wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) };
	pthread_mutex_init(&gathering->lock, NULL);
	for (int i = 0; i < GATHERING_LINKS_MAX; i++)
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

bool gathering_reach(struct gathering *gathering, double seconds)
{
	if (gathering->rank > 0 && gathering->found < 0)
		gathering->found = gathering_look_for_rank_0(gathering, seconds);
	return gathering->rank == 0 || gathering->found >= 0;
}

void gathering_set_key(struct gathering *gathering, const unsigned char key[16])
{
	memcpy(gathering->secret.key, key, sizeof gathering->secret.key);
	gathering->references++;
	if (thread_start(NULL, run_thread, gathering) == 0)
		return;
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
		return gathering_take_body(gathering, 0, bytes, size);
	round->own = gathering_message_make(size);
	if (!round->own.bytes)
		return false;
	if (size)
		memcpy(gathering_message_body(&round->own), bytes, size);
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
	const unsigned char *at = fence < gathering->complete ? gathering_message_body(&gathering->rounds[fence]->all) : NULL;
	pthread_mutex_unlock(&gathering->lock);
	*size = 0;
	return at ? gathering_bodies_of(at, rank, size) : NULL;
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
