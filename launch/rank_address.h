/* SPDX-License-Identifier: Apache-2.0 */
/* The address under which the other nodes of the job reach this node. */
#ifndef MUSTER_RANK_ADDRESS_H
#define MUSTER_RANK_ADDRESS_H

#include <stddef.h>

#include "common/err.h"
#include "common/ident.h"

#define RANK_ADDRESS_SIZE 64

/* Writes the address in digits. It is the first of these that exists: that of the interface which
 * MUSTER_IFNAME or GLOO_SOCKET_IFNAME names; loopback if the world is on one node; what the node's
 * name resolves to (or where it doesn't, what Slurm has for it), if this node has that address and
 * it is not loopback; that of the first interface that is up and not loopback. -1 with status
 * EXIT_USAGE when the named interface does not exist. */
int rank_address(const struct ident *ident, char address[RANK_ADDRESS_SIZE], struct err *err);

#endif
