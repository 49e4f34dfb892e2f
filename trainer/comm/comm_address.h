/* SPDX-License-Identifier: Apache-2.0 */
/* The address of this node under which the other nodes of the job reach it. */
#ifndef MUSTER_COMM_ADDRESS_H
#define MUSTER_COMM_ADDRESS_H

#include <stddef.h>

#include "common/err.h"
#include "common/ident.h"

#define COMM_ADDRESS_SIZE 64

/* Writes it in digits: of the interface that MUSTER_IFNAME or GLOO_SOCKET_IFNAME names; else
 * loopback if the world is on one node; else what the node's name resolves to, or Slurm has for it
 * where it doesn't, if that is an address of this node and not loopback; else of the first
 * interface that is up and not loopback. `err` has status EXIT_USAGE when the named one is not
 * there. */
int comm_address(const struct ident *ident, char address[COMM_ADDRESS_SIZE], struct err *err);

#endif
