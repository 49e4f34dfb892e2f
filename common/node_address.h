/* SPDX-License-Identifier: Apache-2.0 */
/* The addresses of the job's nodes: what their names resolve to, and else what Slurm's daemons use.
 */
#ifndef MUSTER_NODE_ADDRESS_H
#define MUSTER_NODE_ADDRESS_H

#include <netdb.h>

/* As getaddrinfo(), for the name of a node. Where that fails within Slurm, it asks scontrol, once
 * for all nodes of the step, and waits for it for some seconds at most. */
int node_address(const char *node, const char *port, const struct addrinfo *hints,
	struct addrinfo **found);

#endif
