/* SPDX-License-Identifier: Apache-2.0 */
/* How two ranks come to have a TCP connection (doc/comm-links.md): the place where others find a
 * rank, and the hello that tells it which rank has connected. Nothing here waits. */
#ifndef MUSTER_COMM_LINKS_H
#define MUSTER_COMM_LINKS_H

#include "common/err.h"

#define COMM_LINKS_HELLO 20 /* bytes */

struct comm_links;

/* Listens on an address of this node, given in digits. NULL on error. */
struct comm_links *comm_links_open(int rank, int size, const char *address, struct err *err);

/* The line to publish, by which the others find this rank. Borrowed. */
const char *comm_links_place(const struct comm_links *links);

/* Reads a peer's line; -1: it is malformed. */
int comm_links_find(struct comm_links *links, int peer, const char *place);

/* Starts to connect with a lower rank, whose place must be known. Returns a non-blocking
 * descriptor, on which `hello` must be sent before all else; -1 with errno. */
int comm_links_connect(const struct comm_links *links, int peer,
	unsigned char hello[COMM_LINKS_HELLO]);

/* The descriptor to poll for reading. *seconds is lowered to the time after which this must be
 * called again. */
int comm_links_poll(struct comm_links *links, double *seconds);

/* Takes a connection of a higher rank whose hello has come: its non-blocking descriptor, and *peer;
 * -1: there is none now. */
int comm_links_accept(struct comm_links *links, int *peer);

/* NULL is allowed. */
void comm_links_close(struct comm_links *links);

#endif
