/* SPDX-License-Identifier: Apache-2.0 */
/* The addresses of the job's nodes: what their names resolve to, else those that Slurm's daemons
 * use. */
#ifndef MUSTER_NODE_ADDRESS_H
#define MUSTER_NODE_ADDRESS_H

#include <netdb.h>

/* As getaddrinfo(), for a node's name. If that fails inside a job, asks scontrol, once for all
 * nodes of the step, and waits a few seconds at most for its answer. */
int node_address(const char *node, const char *port, const struct addrinfo *hints,
	struct addrinfo **found);

#endif
