/* SPDX-License-Identifier: Apache-2.0 */
/* One thread per rank moves the messages. Rank 0's thread has a link to each rank, and sends once
 * the last rank's message has arrived; any other rank's thread has one link, to rank 0. The data of
 * all ranks is kept until the end, since it can be asked for at any time, unless all of it is
 * passing. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/io.h"
#include "common/listen.h"
#include "common/thread.h"
#include "launch/bootstrap_private.h"
#include "launch/run_key.h"

/* ---- rounds; the lock is held ---- */

static struct round *round_of(struct bootstrap *bootstrap, uint32_t fence)
{
	if (fence < bootstrap->round_count)
		return bootstrap->rounds[fence];
	struct round **grown = realloc(bootstrap->rounds, (fence + 1) * sizeof *grown);
	if (!grown)
		return NULL;
	bootstrap->rounds = grown;
	struct round *round = grown[fence] = calloc(1, sizeof *round);
	bootstrap->round_count += round != NULL;
	return round;
}

static bool all_have_come(const struct bootstrap *bootstrap, uint32_t fence)
{
	for (int rank = 0; rank < bootstrap->world_size; rank++)
		if (bootstrap->come[rank] <= fence)
			return false;
	return true;
}

static void free_bodies(const struct bootstrap *bootstrap, struct round *round)
{
	for (int rank = 0; rank < bootstrap->world_size && round->bodies; rank++)
		free(round->bodies[rank].bytes);
	free(round->bodies);
	round->bodies = NULL;
}

/* Rank 0: joins the bodies of all ranks to one message. */
static bool put_together(const struct bootstrap *bootstrap, struct round *round, uint32_t fence)
{
	size_t size = 0;
	for (int rank = 0; rank < bootstrap->world_size; rank++)
		size += round->bodies[rank].size;
	round->all = bootstrap_message_make(bootstrap_bodies_size(size, (size_t)bootstrap->world_size));
	unsigned char *at = bootstrap_message_body(&round->all);
	if (!at)
		return false;
	for (int rank = 0; rank < bootstrap->world_size; rank++)
		at = bootstrap_bodies_put(at, round->bodies[rank].bytes, round->bodies[rank].size);
	bootstrap_message_seal(&round->all, &bootstrap->secret, bootstrap->rank, fence);
	free_bodies(bootstrap, round);
	return true;
}

/* Everybody has come to the round after this one, and so has read what was passing in it; a rank
 * that has asked for it by PMIx may yet have to receive it. */
static void forget(const struct bootstrap *bootstrap, uint32_t fence)
{
	struct round *round = bootstrap->rounds[fence];
	for (int i = 0; i < BOOTSTRAP_LINKS_MAX && bootstrap->rank == 0; i++)
		if (bootstrap->links[i].fd >= 0 && bootstrap->links[i].rank >= 0
			&& bootstrap->links[i].out <= fence)
			return;
	for (int rank = 0; rank < bootstrap->world_size && round->all.bytes; rank++) {
		size_t size;
		const unsigned char *list =
			bootstrap_bodies_of(bootstrap_message_body(&round->all), rank, &size);
		if (!put_list_is_passing(list, size))
			return;
	}
	free(round->all.bytes);
	round->all.bytes = NULL;
}

void bootstrap_complete_round(struct bootstrap *bootstrap)
{
	if (bootstrap->complete++ > 0)
		forget(bootstrap, bootstrap->complete - 2);
}

bool bootstrap_take_body(struct bootstrap *bootstrap, int rank, const unsigned char *body,
	size_t size)
{
	struct round *round = round_of(bootstrap, bootstrap->come[rank]);
	if (round && !round->bodies)
		round->bodies = calloc((size_t)bootstrap->world_size, sizeof *round->bodies);
	unsigned char *copy = round && round->bodies ? malloc(size + 1) : NULL;
	if (!copy)
		return false;
	if (size)
		memcpy(copy, body, size);
	round->bodies[rank] = (struct put_list) { copy, size };
	bootstrap->come[rank]++;
	while (all_have_come(bootstrap, bootstrap->complete)) {
		if (!put_together(bootstrap, bootstrap->rounds[bootstrap->complete], bootstrap->complete))
			return false;
		bootstrap_complete_round(bootstrap);
	}
	return true;
}

static bool has_sent_all(const struct bootstrap *bootstrap)
{
	for (int i = 0; i < BOOTSTRAP_LINKS_MAX && bootstrap->rank == 0; i++)
		if (bootstrap->links[i].fd >= 0 && bootstrap->links[i].rank >= 0
			&& bootstrap->links[i].out < bootstrap->complete)
			return false;
	return true;
}

/* Rank 0 may end its process as soon as it knows, so all messages have to be sent first. */
static void tell(struct bootstrap *bootstrap)
{
	if (has_sent_all(bootstrap))
		bootstrap->told = bootstrap->complete;
	pthread_cond_broadcast(&bootstrap->changed);
}

/* ---- the thread ---- */

static void await_work(struct bootstrap *bootstrap)
{
	double seconds = INFINITY;
	struct pollfd fds[BOOTSTRAP_LINKS_MAX + 2] = { { .fd = bootstrap->wake, .events = POLLIN },
		{ .fd = acceptor_poll(&bootstrap->acceptor, &seconds), .events = POLLIN } };
	uint64_t count;
	int used = 2;
	pthread_mutex_lock(&bootstrap->lock);
	for (int i = 0; i < BOOTSTRAP_LINKS_MAX; i++) {
		const struct link *link = &bootstrap->links[i];
		if (link->fd >= 0)
			fds[used++] = (struct pollfd) { .fd = link->fd,
				.events =
					(short)(POLLIN | (bootstrap_has_to_send(bootstrap, link) ? POLLOUT : 0)) };
	}
	pthread_mutex_unlock(&bootstrap->lock);
	poll(fds, (nfds_t)used, isinf(seconds) ? -1 : (int)(seconds * 1000) + 1);
	eventfd_read(bootstrap->wake, &count);
}

/* Moves what can be moved; false: the bootstrap is over. */
static bool work(struct bootstrap *bootstrap)
{
	pthread_mutex_lock(&bootstrap->lock);
	bootstrap_take_connections(bootstrap);
	for (int i = 0; i < BOOTSTRAP_LINKS_MAX; i++)
		if (bootstrap->links[i].fd >= 0 && !bootstrap_receive(bootstrap, &bootstrap->links[i]))
			bootstrap_close_link(bootstrap, &bootstrap->links[i]);
	for (int i = 0; i < BOOTSTRAP_LINKS_MAX; i++)
		if (bootstrap->links[i].fd >= 0 && !bootstrap_send(bootstrap, &bootstrap->links[i]))
			bootstrap_close_link(bootstrap, &bootstrap->links[i]);
	tell(bootstrap);
	bool go_on = !bootstrap->over && (bootstrap->rank == 0 || !bootstrap->lost);
	pthread_mutex_unlock(&bootstrap->lock);
	return go_on;
}

static void drop(struct bootstrap *bootstrap);

static void *run_thread(void *arg)
{
	struct bootstrap *bootstrap = arg;
	if (bootstrap->rank > 0) {
		int fd = bootstrap->found >= 0 ? bootstrap->found
									   : bootstrap_look_for_rank_0(bootstrap, INFINITY);
		bootstrap->found = -1;
		if (fd >= 0)
			bootstrap_open_link(bootstrap, &bootstrap->links[0], fd);
	}
	while (work(bootstrap))
		await_work(bootstrap);
	pthread_mutex_lock(&bootstrap->lock);
	bootstrap->lost = true;
	tell(bootstrap);
	pthread_mutex_unlock(&bootstrap->lock);
	drop(bootstrap);
	return NULL;
}

/* ---- begin and end ---- */

static void release(struct bootstrap *bootstrap)
{
	for (int i = 0; i < BOOTSTRAP_LINKS_MAX; i++)
		if (bootstrap->links[i].fd >= 0)
			bootstrap_close_link(bootstrap, &bootstrap->links[i]);
	for (uint32_t fence = 0; fence < bootstrap->round_count; fence++) {
		struct round *round = bootstrap->rounds[fence];
		free_bodies(bootstrap, round);
		free(round->own.bytes);
		free(round->all.bytes);
		free(round);
	}
	if (bootstrap->acceptor.fd >= 0)
		close(bootstrap->acceptor.fd);
	if (bootstrap->found >= 0)
		close(bootstrap->found);
	if (bootstrap->wake >= 0)
		close(bootstrap->wake);
	pthread_mutex_destroy(&bootstrap->lock);
	pthread_cond_destroy(&bootstrap->changed);
	free(bootstrap->rounds);
	free(bootstrap);
}

static void drop(struct bootstrap *bootstrap)
{
	pthread_mutex_lock(&bootstrap->lock);
	int left = --bootstrap->references;
	pthread_mutex_unlock(&bootstrap->lock);
	if (left == 0)
		release(bootstrap);
}

static int listen_as_rank_0(struct bootstrap *bootstrap, struct err *err)
{
	int got;
	bootstrap->acceptor.fd = listen_any(bootstrap->port, &got);
	if (bootstrap->acceptor.fd < 0 || fcntl(bootstrap->acceptor.fd, F_SETFL, O_NONBLOCK) < 0)
		return err_set(err, "rendezvous: couldn't listen on port %d (TCP): %m", bootstrap->port);
	return 0;
}

struct bootstrap *bootstrap_begin(const struct bootstrap_plan *plan, struct err *err)
{
	struct bootstrap *bootstrap =
		plan->world_size <= BOOTSTRAP_WORLD_MAX ? calloc(1, sizeof *bootstrap) : NULL;
	if (!bootstrap) {
		err_set(err, "rendezvous: couldn't gather %d ranks: more than %d, or no memory",
			plan->world_size, BOOTSTRAP_WORLD_MAX);
		return NULL;
	}
	*bootstrap = (struct bootstrap) { .rank = plan->rank,
		.world_size = plan->world_size,
		.secret.session = plan->run,
		.port = run_port(plan->run, 0),
		.acceptor.fd = -1,
		.found = -1,
		.references = 1,
		.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) };
	pthread_mutex_init(&bootstrap->lock, NULL);
	deadline_condition(&bootstrap->changed);
	for (int i = 0; i < BOOTSTRAP_LINKS_MAX; i++)
		bootstrap->links[i] = (struct link) { .fd = -1, .rank = -1 };
	if (plan->node)
		snprintf(bootstrap->node, sizeof bootstrap->node, "%s", plan->node);
	if (bootstrap->wake < 0)
		err_fail(err, io_status(errno),
			"rendezvous: couldn't gather the ranks: couldn't make an eventfd: %m");
	else if (plan->rank > 0 || plan->world_size == 1 || listen_as_rank_0(bootstrap, err) == 0)
		return bootstrap;
	release(bootstrap);
	return NULL;
}

bool bootstrap_reach(struct bootstrap *bootstrap, double seconds)
{
	if (bootstrap->rank > 0 && bootstrap->found < 0)
		bootstrap->found = bootstrap_look_for_rank_0(bootstrap, seconds);
	return bootstrap->rank == 0 || bootstrap->found >= 0;
}

void bootstrap_set_key(struct bootstrap *bootstrap, const unsigned char key[16])
{
	memcpy(bootstrap->secret.key, key, sizeof bootstrap->secret.key);
	bootstrap->references++;
	if (thread_start(NULL, run_thread, bootstrap) == 0)
		return;
	pthread_mutex_lock(&bootstrap->lock);
	bootstrap->references--;
	bootstrap->lost = true;
	tell(bootstrap);
	pthread_mutex_unlock(&bootstrap->lock);
}

static void wake(struct bootstrap *bootstrap)
{
	eventfd_write(bootstrap->wake, 1);
}

/* Rank 0 takes its own body as it takes those of others. Another rank keeps its body as the message
 * that it will send. */
static bool come_with(struct bootstrap *bootstrap, struct round *round, const void *bytes,
	size_t size)
{
	if (size > BOOTSTRAP_BYTES_MAX)
		return false;
	if (bootstrap->rank == 0)
		return bootstrap_take_body(bootstrap, 0, bytes, size);
	round->own = bootstrap_message_make(size);
	if (!round->own.bytes)
		return false;
	if (size)
		memcpy(bootstrap_message_body(&round->own), bytes, size);
	bootstrap->come[bootstrap->rank]++;
	return true;
}

void bootstrap_come(struct bootstrap *bootstrap, const void *bytes, size_t size)
{
	pthread_mutex_lock(&bootstrap->lock);
	struct round *round =
		bootstrap->lost ? NULL : round_of(bootstrap, bootstrap->come[bootstrap->rank]);
	if (!round || !come_with(bootstrap, round, bytes, size))
		bootstrap->lost = true;
	tell(bootstrap);
	pthread_mutex_unlock(&bootstrap->lock);
	wake(bootstrap);
}

bool bootstrap_wait(struct bootstrap *bootstrap, uint32_t fence, struct deadline deadline)
{
	struct timespec until = deadline_timespec(deadline);
	pthread_mutex_lock(&bootstrap->lock);
	while (bootstrap->told <= fence && !(bootstrap->lost && bootstrap->complete <= fence)
		&& pthread_cond_timedwait(&bootstrap->changed, &bootstrap->lock, &until) == 0)
		;
	bool all = bootstrap->told > fence;
	pthread_mutex_unlock(&bootstrap->lock);
	return all;
}

uint32_t bootstrap_complete(struct bootstrap *bootstrap)
{
	pthread_mutex_lock(&bootstrap->lock);
	uint32_t complete = bootstrap->complete;
	pthread_mutex_unlock(&bootstrap->lock);
	return complete;
}

const unsigned char *bootstrap_bytes(struct bootstrap *bootstrap, uint32_t fence, int rank,
	size_t *size)
{
	pthread_mutex_lock(&bootstrap->lock);
	const unsigned char *at =
		fence < bootstrap->complete ? bootstrap_message_body(&bootstrap->rounds[fence]->all) : NULL;
	pthread_mutex_unlock(&bootstrap->lock);
	*size = 0;
	return at ? bootstrap_bodies_of(at, rank, size) : NULL;
}

void bootstrap_end(struct bootstrap *bootstrap)
{
	if (!bootstrap)
		return;
	pthread_mutex_lock(&bootstrap->lock);
	bootstrap->over = true;
	pthread_mutex_unlock(&bootstrap->lock);
	wake(bootstrap);
	drop(bootstrap);
}
