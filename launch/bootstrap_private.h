/* SPDX-License-Identifier: Apache-2.0 */
/* The state of struct bootstrap, shared by its files. */
#ifndef MUSTER_BOOTSTRAP_PRIVATE_H
#define MUSTER_BOOTSTRAP_PRIVATE_H

#include <pthread.h>

#include "common/acceptor.h"
#include "launch/bootstrap.h"
#include "launch/bootstrap_message.h"

#define BOOTSTRAP_STRANGERS_MAX 64 /* connections to rank 0 that have not said who they are */
#define BOOTSTRAP_LINKS_MAX (BOOTSTRAP_WORLD_MAX + BOOTSTRAP_STRANGERS_MAX)

struct body {
	unsigned char *bytes;
	size_t size;
};

/* One fence. */
struct round {
	struct body *bodies; /* on rank 0, until all have come: of each rank */
	struct bootstrap_message own,
		all; /* what any other rank sends, until it is answered; what rank 0 sends */
	void (*met)(void *arg, bool all); /* NULL: this rank has not come, or was told */
	void *arg;
};

struct link {
	int fd, rank; /* -1: none; -1: it has not said */
	unsigned long age;
	bool greeted;                   /* its challenge, or rank 0's proof, has come */
	uint64_t number;                /* of this rank's: the challenge; on rank 0 the session */
	struct bootstrap_secret origin; /* of the messages that a rank sends to rank 0 */
	unsigned char greeting[BOOTSTRAP_GREETING_SIZE];
	size_t greeting_left; /* its last bytes, which are to be sent */
	unsigned char *in;
	size_t have, want;
	uint32_t out; /* the round whose message is sent to it */
	size_t sent;
};

struct bootstrap {
	int rank, world_size, port, wake;
	struct acceptor acceptor;
	struct bootstrap_secret secret; /* of rank 0's messages */
	char node[256];                 /* of rank 0; "": this one */
	int found; /* a connection with rank 0's port, from before the key; -1: none */
	unsigned long links_seen;
	struct link links[BOOTSTRAP_LINKS_MAX];

	pthread_mutex_t lock; /* over what follows, and the links once they are made */
	int references;       /* the owner's and the thread's */
	bool over, lost;
	struct round **rounds;
	uint32_t round_count;
	uint32_t come[BOOTSTRAP_WORLD_MAX]; /* of each rank, the fences that it has come to; of others
										   than rank 0 only the own */
	uint32_t complete, told; /* rounds that all have come to; that `met` was called for */
};

/* Takes a body, of `size` bytes, with which a rank has come to its next fence (bootstrap.c). */
bool bootstrap_take_body(struct bootstrap *bootstrap, int rank, const unsigned char *body,
	size_t size);

/* The connections (bootstrap_links.c); the lock is held. */
void bootstrap_close_link(struct bootstrap *bootstrap, struct link *link);
bool bootstrap_open_link(struct bootstrap *bootstrap, struct link *link, int fd);
/* Takes what has come; false: the connection is of no more use. */
bool bootstrap_receive(struct bootstrap *bootstrap, struct link *link);
/* Whether there is something to send; sends what can be, false: the connection is of no more use.
 */
bool bootstrap_has_to_send(const struct bootstrap *bootstrap, const struct link *link);
bool bootstrap_send(struct bootstrap *bootstrap, struct link *link);
/* Rank 0: takes new ones. */
void bootstrap_take_connections(struct bootstrap *bootstrap);
/* Any other rank, without the lock: a connection with rank 0's port, or -1 when there is no time
 * for it any more. */
int bootstrap_look_for_rank_0(struct bootstrap *bootstrap, double seconds);

#endif
