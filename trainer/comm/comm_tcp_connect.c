/* SPDX-License-Identifier: Apache-2.0 */
/* How the ranks of a communicator come to be connected: one line a rank, one fence, connections
 * between any two (doc/comm-links.md), and where these can't be made, one more fence that says why,
 * and which ranks are lost. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/clock.h"
#include "launch/rank_status.h"
#include "trainer/comm/comm_address.h"
#include "trainer/comm/comm_links.h"
#include "trainer/comm/comm_tcp.h"

#define CONNECT_SHARE 0.5 /* of the deadline; the rest is for finding out which rank is missing */

/* Listens where the others can reach this rank. */
static struct comm_links *start_listening(const struct comm_tcp *tcp, const struct ident *ident,
	struct err *err)
{
	char address[COMM_ADDRESS_SIZE];
	if (comm_address(ident, address, err) < 0)
		return NULL;
	struct comm_links *links = comm_links_open(tcp->rank, tcp->size, address, err);
	if (!links)
		err_prefix(err, "comm: couldn't listen on %s", address);
	return links;
}

/* Learns the places and the names of the others. */
static int take_places(struct comm_tcp *tcp, struct comm_links *links,
	const struct rank_status *all, struct err *err)
{
	if (rank_statuses_check(all, tcp->size, err) < 0)
		return -1;
	for (int rank = 0; rank < tcp->size; rank++) {
		snprintf(tcp->peers[rank].name, sizeof tcp->peers[rank].name, "rank %d on %s", rank,
			all[rank].node);
		if (rank != tcp->rank && comm_links_find(links, rank, all[rank].data) < 0)
			return err_set(err, "comm: couldn't read the address of rank %d", rank);
	}
	return 0;
}

/* Publishes this rank's place, or why it has none, and learns those of the others. */
static int exchange_places(struct comm_tcp *tcp, const struct ident *ident, struct rdzv *rdzv,
	const char *key, struct comm_links **links, struct err *err)
{
	struct err failure;
	struct rank_status_own own = { 0 };
	*links = start_listening(tcp, ident, &failure);
	if (*links) {
		own.data = comm_links_place(*links);
		own.size = strlen(comm_links_place(*links));
	} else {
		own.failure = &failure;
	}
	struct rank_status *all = rank_status_exchange(rdzv, ident, key, &own, 0, err);
	if (!all)
		return err_prefix(err, "comm: couldn't exchange addresses");
	int rc = take_places(tcp, *links, all, err);
	rank_statuses_free(all, tcp->size);
	return rc;
}

/* This rank's reason for giving up. */
struct reason {
	struct err err;
	bool knows; /* it misses a rank itself, and has not only heard that another one left */
};

/* The ranks meet once more. One that was lost on the way is named by the rendezvous, where those
 * that wait for it would blame each other. Always -1. */
static int give_up(const struct comm_tcp *tcp, const struct ident *ident, struct rdzv *rdzv,
	const char *key, const struct reason *why, double seconds, struct err *err)
{
	const struct rank_status_own own = { .number = why->knows,
		.data = why->err.text,
		.size = strlen(why->err.text) };
	struct rank_status *all = rank_status_exchange(rdzv, ident, key, &own, seconds, err);
	if (!all)
		return err_prefix(err, "comm: couldn't connect");
	int first = 0;
	while (first < tcp->size && !all[first].number)
		first++;
	if (first < tcp->size && !why->knows)
		err_fail(err, EXIT_LOST, "%s: %s", rank_status_name(all, first).text, all[first].data);
	else
		*err = why->err;
	rank_statuses_free(all, tcp->size);
	return -1;
}

/* Makes the connections, or says why not. */
static int connect_links(struct comm_tcp *tcp, const struct ident *ident, struct rdzv *rdzv,
	const char *key, struct comm_links *links, struct err *err)
{
	const double timeout = rdzv_timeout(rdzv);
	struct deadline deadline = deadline_in(timeout);
	struct reason why;
	int peer = 0;
	enum comm_links_end end = comm_links_connect(links, CONNECT_SHARE * timeout, &peer, &why.err);
	if (end == COMM_LINKS_ALL) {
		for (peer = 0; peer < tcp->size; peer++)
			if (peer != tcp->rank)
				tcp->peers[peer].conn.fd = comm_links_take(links, peer);
		return 0;
	}
	char failed[80];
	snprintf(failed, sizeof failed, "%s.failed", key);
	err_prefix(&why.err, "comm: couldn't connect to %s", tcp->peers[peer].name);
	why.knows = end == COMM_LINKS_MISSING;
	double left = fmax(ceil(deadline_left(deadline)), (1 - CONNECT_SHARE) / 2 * timeout);
	return give_up(tcp, ident, rdzv, failed, &why, left, err);
}

int comm_tcp_connect(struct comm_tcp *tcp, const struct ident *ident, struct rdzv *rdzv,
	struct err *err)
{
	static int opened; /* a key is used once */
	struct comm_links *links = NULL;
	char key[40];
	snprintf(key, sizeof key, "comm.tcp.%d", __atomic_fetch_add(&opened, 1, __ATOMIC_RELAXED));
	int rc = exchange_places(tcp, ident, rdzv, key, &links, err);
	if (rc == 0)
		rc = connect_links(tcp, ident, rdzv, key, links, err);
	comm_links_close(links);
	return rc;
}
