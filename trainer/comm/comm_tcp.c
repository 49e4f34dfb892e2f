/* SPDX-License-Identifier: Apache-2.0 */
/* The communicator over TCP. The communicator's thread posts transfers, writes what may go at once,
 * and waits. */
#include "trainer/comm/comm_tcp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static void post(struct comm_tcp *tcp, struct link *link)
{
	struct comm_conn *conn = &tcp->peers[link->peer].conn;
	if (link->send)
		comm_conn_send(conn, &link->transfer);
	else
		comm_conn_receive(conn, &link->transfer);
	comm_tcp_write(tcp, link->peer);
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
	if (tcp->lost)
		return true;
	for (int i = 0; i < exchange->count; i++)
		if (tcp->peers[exchange->links[i].peer].conn.ended
			&& !is_done(&exchange->links[i], SIZE_MAX))
			return true;
	return false;
}

/* What keeps transfers from their end, the first that does of these. */
enum lack { CONNECTION, PIECE, SUM, LACKS };

static bool lacks(const struct comm_tcp *tcp, const struct link *link, enum lack lack)
{
	const struct comm_conn *conn = &tcp->peers[link->peer].conn;
	return !is_done(link, SIZE_MAX)
		&& (lack == CONNECTION ? conn->blocked && !conn->traffic : link->sum == (lack == SUM));
}

/* "waiting for rank 2 on node7, rank 3 on node8": those whose pieces, or else whose sums are
 * missing, since a rank that waits for a piece has no sum for others. A rank that has all pieces
 * can't tell one that waits so from one that is lost: the goodbyes do (comm_name_silent,
 * comm_last_words). */
static void name_missing(const struct comm_tcp *tcp, const struct comm_tcp_exchange *exchange,
	char *out, size_t size)
{
	out[0] = '\0';
	for (enum lack lack = CONNECTION; lack < LACKS && !out[0]; lack++) {
		const char *intro = lack == CONNECTION ? "couldn't connect to " : "waiting for ";
		for (int rank = 0; rank < tcp->size; rank++) {
			int i = 0;
			while (i < exchange->count
				&& (exchange->links[i].peer != rank || !lacks(tcp, &exchange->links[i], lack)))
				i++;
			if (i < exchange->count)
				comm_tcp_name(&tcp->peers[rank], intro, out, size);
		}
		if (lack == CONNECTION && out[0])
			snprintf(out + strlen(out), size - strlen(out), ": no answer%s", tcp->remedy);
	}
	if (!out[0])
		snprintf(out, size, "all transfers complete");
}

/* The reason for which an exchange does not come to its end, as far as it can be told. */
static int explain(const struct comm_tcp *tcp, const struct comm_tcp_exchange *exchange,
	struct err *err)
{
	char why[sizeof err->text];
	if (tcp->interrupted)
		name_missing(tcp, exchange, why, sizeof why);
	else
		comm_tcp_blame(tcp, why, sizeof why);
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
		comm_tcp_write(tcp, link->peer);
	}
	pthread_mutex_unlock(&tcp->lock);
}

static int tcp_next_run(void *state, void *begun, size_t made, size_t *bytes, struct err *err)
{
	struct comm_tcp_exchange *exchange = begun;
	size_t all = 0;
	for (int i = 0; i < exchange->count && all == 0; i++)
		if (!exchange->links[i].send && !exchange->links[i].sum)
			all = exchange->links[i].transfer.bytes;
	*bytes = all - made < COMM_CONN_CHUNK ? all - made : COMM_CONN_CHUNK;
	if (made > 0)
		release_sums(state, exchange, made);
	return *bytes ? wait_for(state, exchange, true, made + *bytes, err) : 0;
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

static int tcp_check(void *state, struct err *err)
{
	struct comm_tcp *tcp = state;
	char why[sizeof err->text];
	pthread_mutex_lock(&tcp->lock);
	comm_tcp_blame(tcp, why, sizeof why);
	pthread_mutex_unlock(&tcp->lock);
	return why[0] ? err_fail(err, EXIT_LOST, "%s", why) : 0;
}

static const char *tcp_peer(void *state, int rank)
{
	return ((struct comm_tcp *)state)->peers[rank].name;
}

static void tcp_close(void *state)
{
	struct comm_tcp *tcp = state;
	while (tcp->exchanges)
		drop(tcp, tcp->exchanges);
	comm_tcp_free(tcp);
}

const struct comm_provider comm_tcp = {
	.name = "tcp",
	.concurrent = true,
	.open = comm_tcp_open,
	.begin = tcp_begin,
	.next_run = tcp_next_run,
	.finish = tcp_finish,
	.interrupt = comm_tcp_interrupt,
	.check = tcp_check,
	.leave = comm_tcp_leave,
	.hang_up = comm_tcp_hang_up,
	.said = comm_tcp_said,
	.close = tcp_close,
	.peer = tcp_peer,
};
