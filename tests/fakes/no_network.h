/* SPDX-License-Identifier: Apache-2.0 */
/* A communicator's provider that counts what this rank sends. Over a network: the one of TCP, which
 * does the work. Without one: for a rank of a world that does not exist; what it would receive is
 * what it sends, so that ranks that tell each other the same agree. */
#ifndef MUSTER_TESTS_NO_NETWORK_H
#define MUSTER_TESTS_NO_NETWORK_H

#include <stdint.h>

#include "trainer/comm/comm_provider.h"

struct sent {
	uint64_t messages, bytes;
};

/* By what this process has sent since it was zeroed; `node_of`: [world] the ranks' nodes. */
extern struct sent_count {
	const int *node_of;
	struct sent inside, outside; /* to ranks of its node, to others */
} sent_count;

extern const struct comm_provider counting_network, no_network;

#endif
