/* SPDX-License-Identifier: Apache-2.0 */
/* The state of struct bootstrap, shared by its files. */
#ifndef MUSTER_BOOTSTRAP_PRIVATE_H
#define MUSTER_BOOTSTRAP_PRIVATE_H

#include <pthread.h>

#include "common/acceptor.h"
#include "launch/bootstrap.h"
#include "launch/bootstrap_message.h"

#define BOOTSTRAP_STRANGERS_MAX 64 /* connections to rank 0 whose rank is unknown */
#define BOOTSTRAP_LINKS_MAX (BOOTSTRAP_WORLD_MAX + BOOTSTRAP_STRANGERS_MAX)

/* One fence. */
struct round {
	struct put_list *bodies; /* rank 0, until all have come: each rank's */
	/* Rank 0 sends `all`; others send `own` and receive `all`, which may be forgotten later. */
	struct bootstrap_message own, all;
};

struct link {
	int fd, rank; /* -1: no connection; -1: the rank is not known yet */
	unsigned long age;
	bool greeted;                   /* the challenge, or rank 0's proof, has arrived */
	uint64_t number;                /* this rank's challenge; on rank 0 the session */
	struct bootstrap_secret origin; /* authenticates what arrives on rank 0, and what others send */
	unsigned char greeting[BOOTSTRAP_GREETING_SIZE];
	size_t greeting_left; /* bytes of it still to send, the last ones */
	unsigned char *in;
	size_t have, want;
	uint32_t out; /* the round whose message is being sent */
	size_t sent;
};

struct bootstrap {
	int rank, world_size, port, wake;
	struct acceptor acceptor;
	struct bootstrap_secret secret; /* for rank 0's messages */
	char node[256];                 /* rank 0's; "": this one */
	int found; /* a connection to rank 0's port, made before the key was set; -1: none */
	unsigned long links_seen;
	struct link links[BOOTSTRAP_LINKS_MAX];

	pthread_mutex_t lock; /* for the fields below, and for the links once they exist */
	pthread_cond_t changed;
	int references; /* the owner's and the thread's */
	bool over, lost;
	struct round **rounds;
	uint32_t round_count;
	uint32_t
		come[BOOTSTRAP_WORLD_MAX]; /* rank 0: fences each rank has reached; others: own entry */
	uint32_t complete, told; /* rounds all ranks have reached, and all messages of which are sent */
};

/* Takes the body of `size` bytes with which a rank has reached its next fence (bootstrap.c). */
bool bootstrap_take_body(struct bootstrap *bootstrap, int rank, const unsigned char *body,
	size_t size);

/* The next round is complete: what was only to be read in the last one is forgotten (bootstrap.c).
 */
void bootstrap_complete_round(struct bootstrap *bootstrap);

/* The connections (bootstrap_links.c). The lock is held. */
void bootstrap_close_link(struct bootstrap *bootstrap, struct link *link);
bool bootstrap_open_link(struct bootstrap *bootstrap, struct link *link, int fd);
/* Takes what has arrived; false: close the connection. */
bool bootstrap_receive(struct bootstrap *bootstrap, struct link *link);
/* Whether there is something to send; bootstrap_send() sends what it can, false: close the
 * connection. */
bool bootstrap_has_to_send(const struct bootstrap *bootstrap, const struct link *link);
bool bootstrap_send(struct bootstrap *bootstrap, struct link *link);
/* Rank 0: accepts new connections. */
void bootstrap_take_connections(struct bootstrap *bootstrap);
/* Other ranks, without the lock: a connection to rank 0's port, or -1 when time is up or the
 * bootstrap has ended. */
int bootstrap_look_for_rank_0(struct bootstrap *bootstrap, double seconds);

#endif
