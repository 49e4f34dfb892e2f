/* SPDX-License-Identifier: Apache-2.0 */
/* A communicator's provider over TCP that counts what this rank sends. */
#ifndef MUSTER_TESTS_COUNTING_NETWORK_H
#define MUSTER_TESTS_COUNTING_NETWORK_H

#include "trainer/comm/comm_dry_run.h"

/* By what this process has sent since it was zeroed. */
extern struct comm_sent_count sent_count;

extern const struct comm_provider counting_network;

#endif
