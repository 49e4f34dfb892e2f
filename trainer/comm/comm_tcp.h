/* SPDX-License-Identifier: Apache-2.0 */
/* A rank of the communicator over TCP: comm_tcp_peers.c connects it with its peers and has the
 * thread that reads and writes, comm_tcp.c exchanges. */
#ifndef MUSTER_COMM_TCP_H
#define MUSTER_COMM_TCP_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "common/ident.h"
#include "launch/rank_links.h"
#include "launch/rdzv.h"
#include "trainer/comm/comm_conn.h"
#include "trainer/comm/comm_provider.h"
#include "telemetry/flight.h"

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
	struct rank_links *links;
	char remedy[200]; /* what helps where ranks can't connect, or "" */

	pthread_mutex_t lock; /* of all below; never held while an event is told */
	pthread_cond_t changed;
	const char *told; /* the first reason heard from a peer that gave up */
	bool interrupted;
	bool lost; /* a peer's connection ended before it had said goodbye */
	struct comm_tcp_goodbye own;
	struct comm_tcp_exchange *exchanges; /* begun; one that fails stays until close */

	int epoll, wake; /* wake: an eventfd, to end the thread */
	bool running;
	pthread_t thread;
	struct comm_tcp_peer peers[]; /* by rank; one's own has a name only */
};

/* ---- comm_tcp_peers.c: with the lock held ---- */

/* Writes what may go to a peer; where there is no connection yet, the higher rank makes it. */
void comm_tcp_write(struct comm_tcp *tcp, int rank);

/* Adds a peer to a list of names; before the first it puts `intro`. */
void comm_tcp_name(const struct comm_tcp_peer *peer, const char *intro, char *out, size_t size);

/* The reason that names what became of ranks; "" where none failed. */
void comm_tcp_blame(const struct comm_tcp *tcp, char *out, size_t size);

/* ---- comm_tcp_peers.c: of comm_provider.h; `state` is a struct comm_tcp ---- */

void *comm_tcp_open(const struct ident *ident, struct rdzv *rdzv, const struct comm_events *events,
	struct err *err);
void comm_tcp_interrupt(void *state);
void comm_tcp_leave(void *state, const char *why, const unsigned char flight[FLIGHT_SIZE]);
void comm_tcp_hang_up(void *state, double seconds);
bool comm_tcp_said(void *state, int rank, unsigned char flight[FLIGHT_SIZE], double *now);
void comm_tcp_free(struct comm_tcp *tcp);

#endif
