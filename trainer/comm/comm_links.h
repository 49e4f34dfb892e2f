/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a TCP connection between any two ranks from one line of text a rank (doc/comm-links.md). */
#ifndef MUSTER_COMM_LINKS_H
#define MUSTER_COMM_LINKS_H

#include "common/err.h"

struct comm_links;

enum comm_links_end {
	COMM_LINKS_ALL,     /* every rank is connected with all */
	COMM_LINKS_MISSING, /* a peer can't be reached, or did not come */
	COMM_LINKS_LEFT,    /* a peer has given up or is lost; others may know why */
};

/* Listens on an address of this node, given in digits. NULL on error. */
struct comm_links *comm_links_open(int rank, int size, const char *address, struct err *err);

/* The line to publish, by which the others find this rank. Borrowed. */
const char *comm_links_place(const struct comm_links *links);

/* Reads a peer's line; -1: it is malformed. */
int comm_links_find(struct comm_links *links, int peer, const char *place);

/* Connects with all peers, whose places must be known, within `seconds`. On failure all connections
 * are closed, *peer is the rank it is about, and err has the reason without that rank's name. Until
 * comm_links_close() the listening socket stays open: a refused peer would take that for its own
 * reason. */
enum comm_links_end comm_links_connect(struct comm_links *links, double seconds, int *peer,
	struct err *err);

/* Hands the connection with a peer over to the caller; -1: there is none. */
int comm_links_take(struct comm_links *links, int peer);

/* Closes what was not taken. `links` may be NULL. */
void comm_links_close(struct comm_links *links);

#endif
