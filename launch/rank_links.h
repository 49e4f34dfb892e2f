/* SPDX-License-Identifier: Apache-2.0 */
/* How two ranks come to have a TCP connection (doc/rank-links.md): the place where others find a
 * rank, and the hello that tells it which rank has connected. Nothing here waits. */
#ifndef MUSTER_RANK_LINKS_H
#define MUSTER_RANK_LINKS_H

#include "common/err.h"

#define RANK_LINKS_HELLO 20 /* bytes */

struct rank_links;

/* Listens on an address of this node, given in digits. NULL on error. */
struct rank_links *rank_links_open(int rank, int size, const char *address, struct err *err);

/* The line to publish, by which the others find this rank. Borrowed. */
const char *rank_links_place(const struct rank_links *links);

/* Reads a peer's line; -1: it is malformed. */
int rank_links_find(struct rank_links *links, int peer, const char *place);

/* Starts to connect with a lower rank, whose place must be known. Returns a non-blocking
 * descriptor, on which `hello` must be sent before all else; -1 with errno. */
int rank_links_connect(const struct rank_links *links, int peer,
	unsigned char hello[RANK_LINKS_HELLO]);

/* The descriptor to poll for reading. *seconds is lowered to the time after which this must be
 * called again. */
int rank_links_poll(struct rank_links *links, double *seconds);

/* Takes a connection of a higher rank whose hello has come: its non-blocking descriptor, and *peer;
 * -1: there is none now. */
int rank_links_accept(struct rank_links *links, int *peer);

/* NULL is allowed. */
void rank_links_close(struct rank_links *links);

#endif
