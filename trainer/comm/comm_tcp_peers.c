/* SPDX-License-Identifier: Apache-2.0 */
/* The peers of a rank. At the start all ranks exchange their places; any two connect when they
 * first have something to exchange. One thread accepts, reads and writes.
 *
 * Each rank connects at once with the one before it, in a ring. So of each rank two others learn at
 * once that it is gone, however little they exchange. A rank that gives up looks to its peers as if
 * it had died. So it says goodbye with its reason, and so do those that hear it: all ranks give up
 * soon, and name the true cause. */
#include "trainer/comm/comm_tcp.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/thread.h"
#include "launch/rank_address.h"
#include "launch/rank_status.h"

#define FAILED_LINGER 3.0
#define ORDERLY_LINGER 5.0
#define READ_MOST COMM_CONN_CHUNK /* bytes of one peer before the next one's turn */
#define EVENTS 64
#define LONG_WAIT 1e6 /* seconds */
/* Beside the ranks: */
#define WAKE UINT64_MAX
#define LINKS (UINT64_MAX - 1)

static bool is_lost(const struct comm_tcp_peer *peer)
{
	return peer->conn.ended && !peer->conn.said;
}

static bool has_failed(const struct comm_tcp_peer *peer)
{
	return peer->conn.said && peer->heard.failed;
}

void comm_tcp_name(const struct comm_tcp_peer *peer, const char *intro, char *out, size_t size)
{
	size_t used = strlen(out);
	snprintf(out + used, size - used, "%s%s", used ? ", " : intro, peer->name);
}

void comm_tcp_blame(const struct comm_tcp *tcp, char *out, size_t size)
{
	const struct comm_tcp_peer *refused = NULL;
	snprintf(out, size, "%s", tcp->told ? tcp->told : "");
	if (tcp->told)
		return;
	for (const struct comm_tcp_peer *peer = tcp->peers; peer < tcp->peers + tcp->size; peer++)
		if (is_lost(peer) && peer->conn.error && !peer->conn.traffic)
			refused = peer;
		else if (is_lost(peer))
			comm_tcp_name(peer, "", out, size);
	size_t used = strlen(out);
	if (used > 0)
		snprintf(out + used, size - used, " is gone (connection closed)");
	else if (refused)
		snprintf(out, size, "couldn't connect to %s: %s%s", refused->name,
			strerror(refused->conn.error), tcp->remedy);
}

/* ---- connections; with the lock held ---- */

/* Polls a peer for what it may bring or take. */
static void poll_peer(struct comm_tcp *tcp, int rank)
{
	struct comm_tcp_peer *peer = &tcp->peers[rank];
	const struct comm_conn *conn = &peer->conn;
	uint32_t wanted = conn->fd < 0 || conn->ended ? 0 : EPOLLIN | (conn->blocked ? EPOLLOUT : 0);
	if (wanted == peer->polled)
		return;
	struct epoll_event event = { .events = wanted, .data.u64 = (uint64_t)rank };
	int how = !peer->polled ? EPOLL_CTL_ADD : wanted ? EPOLL_CTL_MOD : EPOLL_CTL_DEL;
	peer->polled = wanted;
	if (epoll_ctl(tcp->epoll, how, conn->fd, &event) < 0 && wanted)
		comm_conn_end(&peer->conn, errno);
}

/* Who waits hears of whatever has moved since the last call. */
static void write_peer(struct comm_tcp *tcp, int rank)
{
	struct comm_conn *conn = &tcp->peers[rank].conn;
	comm_conn_write(conn);
	poll_peer(tcp, rank);
	tcp->lost |= is_lost(&tcp->peers[rank]);
	if (conn->moved)
		pthread_cond_broadcast(&tcp->changed);
	conn->moved = false;
}

void comm_tcp_write(struct comm_tcp *tcp, int rank)
{
	unsigned char hello[RANK_LINKS_HELLO];
	struct comm_conn *conn = &tcp->peers[rank].conn;
	if (conn->fd < 0 && !conn->ended && rank < tcp->rank) {
		int fd = rank_links_connect(tcp->links, rank, hello);
		if (fd < 0)
			comm_conn_end(conn, errno);
		else
			comm_conn_open(conn, fd, hello, sizeof hello);
	}
	write_peer(tcp, rank);
}

/* ---- the thread ---- */

static void take_connections(struct comm_tcp *tcp)
{
	int fd, rank;
	while ((fd = rank_links_accept(tcp->links, &rank)) >= 0) {
		pthread_mutex_lock(&tcp->lock);
		if (tcp->peers[rank].conn.fd < 0) {
			comm_conn_open(&tcp->peers[rank].conn, fd, "", 0);
			write_peer(tcp, rank);
		} else {
			close(fd);
		}
		pthread_mutex_unlock(&tcp->lock);
	}
}

/* Returns whether the peer has just said that it gives up. */
static bool serve_peer(struct comm_tcp *tcp, int rank, uint32_t events)
{
	struct comm_tcp_peer *peer = &tcp->peers[rank];
	bool had_said = peer->conn.said;
	if (events & ~(uint32_t)EPOLLOUT)
		comm_conn_read(&peer->conn, READ_MOST);
	write_peer(tcp, rank);
	if (had_said || !has_failed(peer))
		return false;
	peer->heard.why[sizeof peer->heard.why - 1] = '\0';
	if (!tcp->told)
		tcp->told = peer->heard.why;
	return true;
}

void comm_tcp_interrupt(void *state)
{
	struct comm_tcp *tcp = state;
	pthread_mutex_lock(&tcp->lock);
	tcp->interrupted = true;
	pthread_cond_broadcast(&tcp->changed);
	pthread_mutex_unlock(&tcp->lock);
}

/* The reason is told before the wait that it ends. */
static void serve_event(struct comm_tcp *tcp, const struct epoll_event *event)
{
	int rank = (int)event->data.u64;
	pthread_mutex_lock(&tcp->lock);
	uint64_t traffic = tcp->peers[rank].conn.traffic;
	bool failed = serve_peer(tcp, rank, event->events);
	bool progress = tcp->peers[rank].conn.traffic != traffic;
	pthread_mutex_unlock(&tcp->lock);
	if (progress)
		tcp->events.progress(tcp->events.arg);
	if (!failed)
		return;
	tcp->events.lost(tcp->events.arg, tcp->peers[rank].heard.why);
	comm_tcp_interrupt(tcp);
}

static void *serve(void *arg)
{
	struct comm_tcp *tcp = arg;
	struct epoll_event events[EVENTS];
	for (;;) {
		double seconds = LONG_WAIT;
		rank_links_poll(tcp->links, &seconds);
		int count = epoll_wait(tcp->epoll, events, EVENTS, (int)(seconds * 1000) + 1);
		for (int i = 0; i < count; i++)
			if (events[i].data.u64 == WAKE)
				return NULL;
			else if (events[i].data.u64 == LINKS)
				take_connections(tcp);
			else
				serve_event(tcp, &events[i]);
	}
}

static int poll_for(struct comm_tcp *tcp, int fd, uint64_t what)
{
	struct epoll_event event = { .events = EPOLLIN, .data.u64 = what };
	return fd < 0 ? -1 : epoll_ctl(tcp->epoll, EPOLL_CTL_ADD, fd, &event);
}

static int start_thread(struct comm_tcp *tcp, struct err *err)
{
	tcp->epoll = epoll_create1(EPOLL_CLOEXEC);
	tcp->wake = eventfd(0, EFD_CLOEXEC);
	if (tcp->epoll < 0 || poll_for(tcp, tcp->wake, WAKE) < 0
		|| poll_for(tcp, rank_links_poll(tcp->links, &(double) { 0 }), LINKS) < 0)
		return err_set(err, "comm: couldn't poll connections: %m");
	int rc = thread_start(&tcp->thread, serve, tcp);
	if (rc != 0)
		return err_set(err, "comm: couldn't start a thread: %s", strerror(rc));
	tcp->running = true;
	return 0;
}

static void stop_thread(struct comm_tcp *tcp)
{
	if (!tcp->running)
		return;
	eventfd_write(tcp->wake, 1);
	pthread_join(tcp->thread, NULL);
	tcp->running = false;
}

/* ---- opening ---- */

static struct comm_tcp *alloc_state(const struct ident *ident, const struct comm_events *events)
{
	struct comm_tcp *tcp =
		calloc(1, sizeof *tcp + (size_t)ident->world_size * sizeof tcp->peers[0]);
	if (!tcp)
		return NULL;
	tcp->rank = ident->rank;
	tcp->size = ident->world_size;
	tcp->events = *events;
	tcp->epoll = tcp->wake = -1;
	pthread_mutex_init(&tcp->lock, NULL);
	deadline_condition(&tcp->changed);
	for (struct comm_tcp_peer *peer = tcp->peers; peer < tcp->peers + tcp->size; peer++)
		peer->conn = (struct comm_conn) { .fd = -1,
			.heard = &peer->heard,
			.heard_bytes = sizeof peer->heard };
	return tcp;
}

/* Listens where the others can reach this rank. */
static int start_listening(struct comm_tcp *tcp, const struct ident *ident, struct err *err)
{
	char address[RANK_ADDRESS_SIZE];
	if (rank_address(ident, address, err) < 0)
		return -1;
	tcp->links = rank_links_open(tcp->rank, tcp->size, address, err);
	if (!tcp->links)
		return err_prefix(err, "comm: couldn't listen on %s", address);
	if (ident->node_count > 1)
		snprintf(tcp->remedy, sizeof tcp->remedy,
			": MUSTER_IFNAME names an interface by which all nodes reach each other (this rank is "
			"at %s)",
			address);
	return 0;
}

/* Learns the places and the names of the others. */
static int take_places(struct comm_tcp *tcp, const struct rank_status *all, struct err *err)
{
	if (rank_statuses_check(all, tcp->size, err) < 0)
		return -1;
	for (int rank = 0; rank < tcp->size; rank++) {
		snprintf(tcp->peers[rank].name, sizeof tcp->peers[rank].name, "rank %d on %s", rank,
			all[rank].node);
		if (rank_links_find(tcp->links, rank, all[rank].data) < 0)
			return err_set(err, "comm: couldn't read the address of rank %d", rank);
	}
	return 0;
}

/* Publishes this rank's place, or why it has none, and learns those of the others. */
static int exchange_places(struct comm_tcp *tcp, const struct ident *ident, struct rdzv *rdzv,
	struct err *err)
{
	static int opened; /* a key is used once */
	struct err failure;
	struct rank_status_own own = { 0 };
	char key[40];
	snprintf(key, sizeof key, "comm.tcp.%d", __atomic_fetch_add(&opened, 1, __ATOMIC_RELAXED));
	if (start_listening(tcp, ident, &failure) == 0) {
		own.data = rank_links_place(tcp->links);
		own.size = strlen(rank_links_place(tcp->links));
	} else {
		own.failure = &failure;
	}
	struct rank_status *all = rank_status_exchange(rdzv, ident, key, &own, 0, err);
	if (!all)
		return err_prefix(err, "comm: couldn't exchange addresses");
	int rc = take_places(tcp, all, err);
	rank_statuses_free(all, tcp->size);
	return rc;
}

static int before(const struct comm_tcp *tcp)
{
	return (tcp->rank + tcp->size - 1) % tcp->size;
}

static int after(const struct comm_tcp *tcp)
{
	return (tcp->rank + 1) % tcp->size;
}

/* Of the ring: comm_tcp_write() leaves the connection to the higher rank. */
static void connect_neighbours(struct comm_tcp *tcp)
{
	pthread_mutex_lock(&tcp->lock);
	comm_tcp_write(tcp, before(tcp));
	comm_tcp_write(tcp, after(tcp));
	pthread_mutex_unlock(&tcp->lock);
}

void *comm_tcp_open(const struct ident *ident, struct rdzv *rdzv, const struct comm_events *events,
	struct err *err)
{
	struct comm_tcp *tcp = alloc_state(ident, events);
	if (!tcp) {
		err_set(err, "comm: couldn't open a communicator: out of memory");
		return NULL;
	}
	if (exchange_places(tcp, ident, rdzv, err) == 0 && start_thread(tcp, err) == 0) {
		connect_neighbours(tcp);
		return tcp;
	}
	comm_tcp_free(tcp);
	return NULL;
}

/* ---- leaving ---- */

static void say_goodbye(struct comm_tcp *tcp, const char *why, const unsigned char *flight)
{
	struct comm_tcp_goodbye *own = &tcp->own;
	own->failed = why != NULL;
	own->now = clock_now();
	memcpy(own->flight, flight, sizeof own->flight);
	if (tcp->told)
		snprintf(own->why, sizeof own->why, "%s", tcp->told);
	else if (why)
		snprintf(own->why, sizeof own->why, "%.100s gave up: %.500s", tcp->peers[tcp->rank].name,
			why);
	for (int rank = 0; rank < tcp->size; rank++) {
		comm_conn_say(&tcp->peers[rank].conn, own, sizeof *own);
		if (why)
			comm_tcp_write(tcp, rank);
		else
			write_peer(tcp, rank);
	}
}

/* Whether a peer may still need this rank, or its goodbye has yet to come: of those that give up
 * all are waited for, since their words tell where they stood; else those that are connected, or
 * are about to be. */
static bool is_awaited(const struct comm_tcp *tcp, int rank)
{
	const struct comm_conn *conn = &tcp->peers[rank].conn;
	if (rank == tcp->rank || conn->ended
		|| (conn->fd < 0 && !tcp->own.failed && rank != before(tcp) && rank != after(tcp)))
		return false;
	return !conn->said || comm_conn_is_pending(conn);
}

static bool is_alone(const struct comm_tcp *tcp)
{
	for (int rank = 0; rank < tcp->size; rank++)
		if (is_awaited(tcp, rank))
			return false;
	return true;
}

static void close_connections(struct comm_tcp *tcp)
{
	stop_thread(tcp);
	for (int rank = 0; rank < tcp->size; rank++)
		comm_conn_clear(&tcp->peers[rank].conn);
	rank_links_close(tcp->links);
	tcp->links = NULL;
}

/* Ends the connections with those that could still write into this rank's memory. */
static void end_awaited(struct comm_tcp *tcp)
{
	for (int rank = 0; rank < tcp->size; rank++)
		if (is_awaited(tcp, rank)) {
			comm_conn_end(&tcp->peers[rank].conn, ETIMEDOUT);
			write_peer(tcp, rank);
		}
}

void comm_tcp_leave(void *state, const char *why, const unsigned char flight[FLIGHT_SIZE])
{
	struct comm_tcp *tcp = state;
	struct timespec until = deadline_timespec(deadline_in(why ? FAILED_LINGER : ORDERLY_LINGER));
	pthread_mutex_lock(&tcp->lock);
	say_goodbye(tcp, why, flight);
	while (!is_alone(tcp) && pthread_cond_timedwait(&tcp->changed, &tcp->lock, &until) != ETIMEDOUT)
		;
	end_awaited(tcp);
	pthread_mutex_unlock(&tcp->lock);
	if (!why)
		close_connections(tcp);
}

static bool is_connected(const struct comm_tcp *tcp)
{
	for (int rank = 0; rank < tcp->size; rank++)
		if (tcp->peers[rank].conn.fd >= 0 && !tcp->peers[rank].conn.ended)
			return true;
	return false;
}

void comm_tcp_hang_up(void *state, double seconds)
{
	struct comm_tcp *tcp = state;
	struct timespec until = deadline_timespec(deadline_in(seconds));
	pthread_mutex_lock(&tcp->lock);
	for (int rank = 0; rank < tcp->size; rank++)
		if (tcp->peers[rank].conn.fd >= 0)
			shutdown(tcp->peers[rank].conn.fd, SHUT_WR);
	while (
		is_connected(tcp) && pthread_cond_timedwait(&tcp->changed, &tcp->lock, &until) != ETIMEDOUT)
		;
	pthread_mutex_unlock(&tcp->lock);
	close_connections(tcp);
}

bool comm_tcp_said(void *state, int rank, unsigned char flight[FLIGHT_SIZE], double *now)
{
	struct comm_tcp *tcp = state;
	pthread_mutex_lock(&tcp->lock);
	const struct comm_tcp_peer *peer = &tcp->peers[rank];
	bool said = peer->conn.said;
	if (said) {
		memcpy(flight, peer->heard.flight, FLIGHT_SIZE);
		*now = peer->heard.now;
	}
	pthread_mutex_unlock(&tcp->lock);
	return said;
}

void comm_tcp_free(struct comm_tcp *tcp)
{
	close_connections(tcp);
	if (tcp->epoll >= 0)
		close(tcp->epoll);
	if (tcp->wake >= 0)
		close(tcp->wake);
	pthread_cond_destroy(&tcp->changed);
	pthread_mutex_destroy(&tcp->lock);
	free(tcp);
}
