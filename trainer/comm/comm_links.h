/* SPDX-License-Identifier: Apache-2.0 */
/* A TCP connection between any two ranks, made from one line a rank (doc/comm-links.md). */
#ifndef MUSTER_COMM_LINKS_H
#define MUSTER_COMM_LINKS_H

#include "common/err.h"

struct comm_links;

enum comm_links_end {
	COMM_LINKS_ALL,     /* all ranks are connected with all */
	COMM_LINKS_MISSING, /* a peer can't be reached, or did not come */
	COMM_LINKS_LEFT,    /* a peer has given up, or is lost; others may know why */
};

/* Listens on an address of this node, in digits. NULL on error. */
struct comm_links *comm_links_open(int rank, int size, const char *address, struct err *err);

/* Where the others find this rank: the line to publish. Borrowed. */
const char *comm_links_place(const struct comm_links *links);

/* Reads that of a peer; -1: it is none. */
int comm_links_find(struct comm_links *links, int peer, const char *place);

/* Connects with all peers, whose places are known, within so many seconds. Where that fails all
 * connections are ended, and err has the reason, without whom it is about: that is *peer. Until
 * comm_links_close() no peer is refused, which would take that for its own reason. */
enum comm_links_end comm_links_connect(struct comm_links *links, double seconds, int *peer,
	struct err *err);

/* Hands the connection with a peer to the caller; -1: there is none. */
int comm_links_take(struct comm_links *links, int peer);

/* Ends what was not taken. NULL is allowed. */
void comm_links_close(struct comm_links *links);

#endif
