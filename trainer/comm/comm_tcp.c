/* SPDX-License-Identifier: Apache-2.0 */
/* The communicator over TCP: a connection between any two ranks, and one thread that reads and
 * writes them. The communicator's thread posts transfers, writes what may go at once, and waits.
 *
 * A rank that gives up looks to its peers as if it had died. So it says goodbye with its reason,
 * and those that follow it name the true cause. */
#include "trainer/comm/comm_tcp.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/thread.h"

#define FAILED_LINGER 3.0
#define ORDERLY_LINGER 5.0
#define READ_MOST COMM_CONN_CHUNK /* bytes of one peer before the next one's turn */
#define EVENTS 64
#define WAKE UINT64_MAX

/* One transfer of an exchange. */
struct link {
	struct comm_conn_transfer transfer;
	int peer;
	bool send, sum;
};

struct comm_tcp_exchange {
	struct comm_tcp_exchange *next;
	int count;
	struct link links[];
};

/* In the place of one for which there was no memory. */
static struct comm_tcp_exchange no_memory;

/* ---- peers; with the lock held ---- */

static bool is_peer(const struct comm_tcp *tcp, int rank)
{
	return rank != tcp->rank;
}

static bool has_failed(const struct comm_tcp_peer *peer)
{
	return peer->conn.said && peer->heard.failed;
}

/* Its connection ended before it had said goodbye. */
static bool is_lost(const struct comm_tcp_peer *peer)
{
	return peer->conn.ended && !peer->conn.said;
}

/* Polls a peer for what it may bring or take. 0, or -1 with errno; only the first poll can fail. */
static int poll_peer(struct comm_tcp *tcp, int rank)
{
	struct comm_tcp_peer *peer = &tcp->peers[rank];
	uint32_t wanted = peer->conn.ended ? 0 : EPOLLIN | (peer->conn.blocked ? EPOLLOUT : 0);
	if (wanted == peer->polled)
		return 0;
	struct epoll_event event = { .events = wanted, .data.u64 = (uint64_t)rank };
	int how = !peer->polled ? EPOLL_CTL_ADD : wanted ? EPOLL_CTL_MOD : EPOLL_CTL_DEL;
	if (epoll_ctl(tcp->epoll, how, peer->conn.fd, &event) < 0)
		return -1;
	peer->polled = wanted;
	return 0;
}

static void write_peer(struct comm_tcp *tcp, int rank)
{
	comm_conn_write(&tcp->peers[rank].conn);
	poll_peer(tcp, rank);
}

/* The reason that names what became of ranks; "" where none failed. */
static void blame(const struct comm_tcp *tcp, char *out, size_t size)
{
	size_t used = 0;
	out[0] = '\0';
	if (tcp->told) {
		snprintf(out, size, "%s", tcp->told);
		return;
	}
	for (int rank = 0; rank < tcp->size; rank++)
		if (is_peer(tcp, rank) && is_lost(&tcp->peers[rank]) && used < size)
			used += (size_t)snprintf(out + used, size - used, "%s%s", used ? ", " : "",
				tcp->peers[rank].name);
	if (used > 0 && used < size)
		snprintf(out + used, size - used, " is gone (connection closed)");
}

/* ---- the thread that reads and writes ---- */

/* Returns whether the peer has just said that it gives up. */
static bool serve_peer(struct comm_tcp *tcp, int rank, uint32_t events)
{
	struct comm_tcp_peer *peer = &tcp->peers[rank];
	bool had_said = peer->conn.said;
	if (events & ~(uint32_t)EPOLLOUT)
		comm_conn_read(&peer->conn, READ_MOST);
	write_peer(tcp, rank);
	if (peer->conn.moved) {
		peer->conn.moved = false;
		pthread_cond_broadcast(&tcp->changed);
	}
	if (had_said || !has_failed(peer))
		return false;
	peer->heard.why[sizeof peer->heard.why - 1] = '\0';
	if (!tcp->told)
		tcp->told = peer->heard.why;
	return true;
}

static void interrupt(struct comm_tcp *tcp)
{
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
	interrupt(tcp);
}

static void *serve(void *arg)
{
	struct comm_tcp *tcp = arg;
	struct epoll_event events[EVENTS];
	for (;;) {
		int count = epoll_wait(tcp->epoll, events, EVENTS, -1);
		for (int i = 0; i < count; i++) {
			if (events[i].data.u64 == WAKE)
				return NULL;
			serve_event(tcp, &events[i]);
		}
	}
}

static int start_thread(struct comm_tcp *tcp, struct err *err)
{
	struct epoll_event event = { .events = EPOLLIN, .data.u64 = WAKE };
	tcp->epoll = epoll_create1(EPOLL_CLOEXEC);
	tcp->wake = eventfd(0, EFD_CLOEXEC);
	if (tcp->epoll < 0 || tcp->wake < 0
		|| epoll_ctl(tcp->epoll, EPOLL_CTL_ADD, tcp->wake, &event) < 0)
		return err_set(err, "comm: couldn't poll connections: %m");
	for (int rank = 0; rank < tcp->size; rank++)
		if (is_peer(tcp, rank) && poll_peer(tcp, rank) < 0)
			return err_set(err, "comm: couldn't poll rank %d: %m", rank);
	int rc = thread_start(&tcp->thread, serve, tcp);
	if (rc != 0)
		return err_set(err, "comm: couldn't start a thread: %s", strerror(rc));
	tcp->running = true;
	return 0;
}

static void stop_thread(struct comm_tcp *tcp)
{
	const uint64_t one = 1;
	if (!tcp->running)
		return;
	while (write(tcp->wake, &one, sizeof one) < 0 && errno == EINTR)
		;
	pthread_join(tcp->thread, NULL);
	tcp->running = false;
}

/* ---- exchanges ---- */

static void post(struct comm_tcp *tcp, struct link *link)
{
	struct comm_conn *conn = &tcp->peers[link->peer].conn;
	if (link->send)
		comm_conn_send(conn, &link->transfer);
	else
		comm_conn_receive(conn, &link->transfer);
	if (!conn->ended)
		write_peer(tcp, link->peer);
}

/* Those that are sent, or those that are received; what may go of a sum is known later. */
static void add_links(struct comm_tcp_exchange *exchange, const struct comm_transfer *transfers,
	int count, bool send, bool sum)
{
	for (int i = 0; i < count; i++)
		if (send == (transfers[i].receive == 0))
			exchange->links[exchange->count++] = (struct link) {
				.transfer = { .buffer = transfers[i].buffer,
					.bytes = transfers[i].bytes,
					.ready = sum ? 0 : transfers[i].bytes },
				.peer = transfers[i].peer,
				.send = send,
				.sum = sum,
			};
}

/* Both ranks of a connection post in the same order: pieces before sums. Receives come first, so
 * that the peers hear of them early. */
static void *tcp_begin(void *state, const struct comm_transfer *transfers, int count,
	const struct comm_sums *sums)
{
	struct comm_tcp *tcp = state;
	int all = count + (sums ? sums->count : 0);
	struct comm_tcp_exchange *exchange =
		calloc(1, sizeof *exchange + (size_t)all * sizeof exchange->links[0]);
	if (!exchange)
		return &no_memory;
	for (int send = 0; send < 2; send++) {
		add_links(exchange, transfers, count, send, false);
		if (sums)
			add_links(exchange, sums->transfers, sums->count, send, true);
	}
	pthread_mutex_lock(&tcp->lock);
	exchange->next = tcp->exchanges;
	tcp->exchanges = exchange;
	for (int i = 0; i < exchange->count; i++)
		post(tcp, &exchange->links[i]);
	pthread_mutex_unlock(&tcp->lock);
	return exchange;
}

static void drop(struct comm_tcp *tcp, struct comm_tcp_exchange *exchange)
{
	struct comm_tcp_exchange **at = &tcp->exchanges;
	while (*at != exchange)
		at = &(*at)->next;
	*at = exchange->next;
	free(exchange);
}

static bool is_done(const struct link *link, size_t bytes)
{
	return link->transfer.done >= (bytes < link->transfer.bytes ? bytes : link->transfer.bytes);
}

/* Whether that many bytes of each transfer are done; with `pieces`, of those received alone. */
static bool has_reached(const struct comm_tcp_exchange *exchange, bool pieces, size_t bytes)
{
	for (int i = 0; i < exchange->count; i++)
		if (!(pieces && (exchange->links[i].send || exchange->links[i].sum))
			&& !is_done(&exchange->links[i], bytes))
			return false;
	return true;
}

/* Whether it can't come to its end: a rank has died, or one that it needs has left. */
static bool is_broken(const struct comm_tcp *tcp, const struct comm_tcp_exchange *exchange)
{
	for (int rank = 0; rank < tcp->size; rank++)
		if (is_peer(tcp, rank) && is_lost(&tcp->peers[rank]))
			return true;
	for (int i = 0; i < exchange->count; i++)
		if (tcp->peers[exchange->links[i].peer].conn.ended
			&& !is_done(&exchange->links[i], SIZE_MAX))
			return true;
	return false;
}

/* "waiting for rank 2 on node7, rank 3 on node8": those whose pieces, or else whose sums are
 * missing, since a rank that waits for a piece has no sum for others. A rank that has all pieces
 * can't tell one that waits so from one that is lost: the report of where the ranks stood does
 * (comm_last_words). */
static void name_missing(const struct comm_tcp *tcp, const struct comm_tcp_exchange *exchange,
	char *out, size_t size)
{
	size_t used = 0;
	for (int sum = 0; sum < 2 && used == 0; sum++)
		for (int i = 0; i < exchange->count && used < size; i++) {
			const struct link *link = &exchange->links[i];
			const char *name = tcp->peers[link->peer].name;
			bool named = false;
			for (int j = 0; j < i && !named; j++)
				named = exchange->links[j].peer == link->peer && exchange->links[j].sum == link->sum
					&& !is_done(&exchange->links[j], SIZE_MAX);
			if (link->sum == (sum == 1) && !named && !is_done(link, SIZE_MAX))
				used += (size_t)snprintf(out + used, size - used, "%s%s",
					used ? ", " : "waiting for ", name);
		}
	if (used == 0)
		snprintf(out, size, "all transfers complete");
}

/* The reason for which an exchange does not come to its end, as far as it can be told. */
static int explain(const struct comm_tcp *tcp, const struct comm_tcp_exchange *exchange,
	struct err *err)
{
	char why[sizeof err->text];
	if (tcp->interrupted) {
		name_missing(tcp, exchange, why, sizeof why);
		return err_fail(err, EXIT_LOST, "%s", why);
	}
	blame(tcp, why, sizeof why);
	return err_fail(err, EXIT_LOST, "%s", why[0] ? why : "a rank that has finished was needed");
}

/* Waits until so much of an exchange is done. */
static int wait_for(struct comm_tcp *tcp, const struct comm_tcp_exchange *exchange, bool pieces,
	size_t bytes, struct err *err)
{
	int rc = exchange == &no_memory ? err_set(err, "out of memory") : 0;
	pthread_mutex_lock(&tcp->lock);
	while (rc == 0 && !has_reached(exchange, pieces, bytes))
		if (tcp->interrupted || is_broken(tcp, exchange))
			rc = explain(tcp, exchange, err);
		else
			pthread_cond_wait(&tcp->changed, &tcp->lock);
	pthread_mutex_unlock(&tcp->lock);
	return rc;
}

/* The sums of these bytes are made: they go on. */
static void release_sums(struct comm_tcp *tcp, struct comm_tcp_exchange *exchange, size_t end)
{
	pthread_mutex_lock(&tcp->lock);
	for (int i = 0; i < exchange->count; i++) {
		struct link *link = &exchange->links[i];
		if (!link->send || !link->sum)
			continue;
		link->transfer.ready = end < link->transfer.bytes ? end : link->transfer.bytes;
		write_peer(tcp, link->peer);
	}
	pthread_mutex_unlock(&tcp->lock);
}

static int tcp_make(void *state, void *begun, const struct comm_sums *sums, struct err *err)
{
	struct comm_tcp *tcp = state;
	struct comm_tcp_exchange *exchange = begun;
	size_t bytes = 0, end;
	for (int i = 0; i < exchange->count && bytes == 0; i++)
		if (!exchange->links[i].send && !exchange->links[i].sum)
			bytes = exchange->links[i].transfer.bytes;
	for (size_t at = 0; at < bytes; at = end) {
		end = bytes - at < COMM_CONN_CHUNK ? bytes : at + COMM_CONN_CHUNK;
		if (wait_for(tcp, exchange, true, end, err) < 0
			|| sums->make(sums->arg, at, end - at, err) < 0)
			return -1;
		release_sums(tcp, exchange, end);
	}
	return 0;
}

static int tcp_finish(void *state, void *begun, struct err *err)
{
	struct comm_tcp *tcp = state;
	if (wait_for(tcp, begun, false, SIZE_MAX, err) < 0)
		return -1;
	pthread_mutex_lock(&tcp->lock);
	drop(tcp, begun);
	pthread_mutex_unlock(&tcp->lock);
	return 0;
}

/* ---- ways out ---- */

static void tcp_interrupt(void *state)
{
	interrupt(state);
}

static int tcp_check(void *state, struct err *err)
{
	struct comm_tcp *tcp = state;
	char why[sizeof err->text];
	pthread_mutex_lock(&tcp->lock);
	blame(tcp, why, sizeof why);
	pthread_mutex_unlock(&tcp->lock);
	return why[0] ? err_fail(err, EXIT_LOST, "%s", why) : 0;
}

static void say_goodbye(struct comm_tcp *tcp, const char *why, const unsigned char *flight)
{
	struct comm_tcp_goodbye *own = &tcp->own;
	own->failed = why != NULL;
	own->now = clock_now();
	memcpy(own->flight, flight, sizeof own->flight);
	if (why && strstr(why, "gave up: "))
		snprintf(own->why, sizeof own->why, "%.600s", why);
	else if (why)
		snprintf(own->why, sizeof own->why, "%.100s gave up: %.500s", tcp->peers[tcp->rank].name,
			why);
	for (int rank = 0; rank < tcp->size; rank++)
		if (is_peer(tcp, rank)) {
			comm_conn_say(&tcp->peers[rank].conn, own, sizeof *own);
			write_peer(tcp, rank);
		}
}

/* Whether no peer needs this rank any more: each has left or is gone, and has this one's goodbye.
 */
static bool is_alone(const struct comm_tcp *tcp)
{
	for (int rank = 0; rank < tcp->size; rank++) {
		const struct comm_conn *conn = &tcp->peers[rank].conn;
		if (is_peer(tcp, rank) && !conn->ended && (!conn->said || comm_conn_is_pending(conn)))
			return false;
	}
	return true;
}

static void close_connections(struct comm_tcp *tcp)
{
	for (int rank = 0; rank < tcp->size; rank++)
		if (tcp->peers[rank].conn.fd >= 0)
			close(tcp->peers[rank].conn.fd);
}

static void tcp_leave(void *state, const char *why, const unsigned char flight[FLIGHT_SIZE])
{
	struct comm_tcp *tcp = state;
	struct timespec until = deadline_timespec(deadline_in(why ? FAILED_LINGER : ORDERLY_LINGER));
	pthread_mutex_lock(&tcp->lock);
	say_goodbye(tcp, why, flight);
	while (!is_alone(tcp) && pthread_cond_timedwait(&tcp->changed, &tcp->lock, &until) != ETIMEDOUT)
		;
	pthread_mutex_unlock(&tcp->lock);
	stop_thread(tcp);
	close_connections(tcp);
}

static bool tcp_said(void *state, int rank, unsigned char flight[FLIGHT_SIZE], double *now)
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

static void tcp_close(void *state)
{
	struct comm_tcp *tcp = state;
	while (tcp->exchanges)
		drop(tcp, tcp->exchanges);
	for (int rank = 0; rank < tcp->size; rank++)
		comm_conn_clear(&tcp->peers[rank].conn);
	if (tcp->epoll >= 0)
		close(tcp->epoll);
	if (tcp->wake >= 0)
		close(tcp->wake);
	pthread_cond_destroy(&tcp->changed);
	pthread_mutex_destroy(&tcp->lock);
	free(tcp->peers);
	free(tcp);
}

static const char *tcp_peer(void *state, int rank)
{
	return ((struct comm_tcp *)state)->peers[rank].name;
}

/* ---- opening ---- */

static struct comm_tcp *alloc_state(const struct ident *ident, const struct comm_events *events)
{
	struct comm_tcp *tcp = calloc(1, sizeof *tcp);
	struct comm_tcp_peer *peers = calloc((size_t)ident->world_size, sizeof *peers);
	if (!tcp || !peers) {
		free(tcp);
		free(peers);
		return NULL;
	}
	*tcp = (struct comm_tcp) { .rank = ident->rank,
		.size = ident->world_size,
		.events = *events,
		.peers = peers,
		.epoll = -1,
		.wake = -1 };
	pthread_mutex_init(&tcp->lock, NULL);
	deadline_condition(&tcp->changed);
	for (int rank = 0; rank < tcp->size; rank++) {
		peers[rank].conn = (struct comm_conn) { .fd = -1,
			.heard = &peers[rank].heard,
			.heard_bytes = sizeof peers[rank].heard };
		snprintf(peers[rank].name, sizeof peers[rank].name, "rank %d", rank);
	}
	return tcp;
}

static void *tcp_open(const struct ident *ident, struct rdzv *rdzv,
	const struct comm_events *events, struct err *err)
{
	struct comm_tcp *tcp = alloc_state(ident, events);
	if (!tcp) {
		err_set(err, "comm: couldn't open a communicator: out of memory");
		return NULL;
	}
	if (comm_tcp_connect(tcp, ident, rdzv, err) == 0 && start_thread(tcp, err) == 0)
		return tcp;
	close_connections(tcp);
	tcp_close(tcp);
	return NULL;
}

const struct comm_provider comm_tcp = {
	.name = "tcp",
	.open = tcp_open,
	.begin = tcp_begin,
	.make = tcp_make,
	.finish = tcp_finish,
	.interrupt = tcp_interrupt,
	.check = tcp_check,
	.leave = tcp_leave,
	.said = tcp_said,
	.close = tcp_close,
	.peer = tcp_peer,
};
