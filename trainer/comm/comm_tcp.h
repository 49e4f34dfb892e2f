/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the communicator over TCP share: comm_tcp.c, which talks, and
 * comm_tcp_connect.c, which makes the connections. */
#ifndef MUSTER_COMM_TCP_H
#define MUSTER_COMM_TCP_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "common/ident.h"
#include "launch/rdzv.h"
#include "trainer/comm/comm_conn.h"
#include "trainer/comm/comm_provider.h"
#include "trainer/telemetry/flight.h"

/* What a rank says when it leaves, to ranks of the same build. */
struct comm_tcp_goodbye {
	int32_t failed; /* 0: it has finished */
	char why[700];
	double now;                        /* of its clock */
	unsigned char flight[FLIGHT_SIZE]; /* where it stands */
};

struct comm_tcp_peer {
	struct comm_conn conn;
	struct comm_tcp_goodbye heard;
	uint32_t polled; /* events that its descriptor is polled for */
	char name[300];  /* "rank 3 on node7" */
};

struct comm_tcp_exchange;

struct comm_tcp {
	int rank, size;
	struct comm_events events;

	pthread_mutex_t lock; /* of all below; never held while an event is told */
	pthread_cond_t changed;
	struct comm_tcp_peer *peers; /* [size]; one's own has a name only */
	const char *told;            /* the first reason heard from a peer that gave up */
	bool interrupted, stopping;
	struct comm_tcp_goodbye own;
	struct comm_tcp_exchange *exchanges; /* begun; one that fails stays until close */

	int epoll, wake; /* wake: an eventfd, to end the thread */
	bool running;
	pthread_t thread;
};

/* Connects to all other ranks, within the rendezvous' deadline; fills in their names and
 * descriptors. Status EXIT_LOST names the ranks that are missing. */
int comm_tcp_connect(struct comm_tcp *tcp, const struct ident *ident, struct rdzv *rdzv,
	struct err *err);

#endif
