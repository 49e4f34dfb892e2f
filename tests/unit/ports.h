/* SPDX-License-Identifier: Apache-2.0 */
/* The ports of a run (launch/run_key.h) on this machine, where other programs may have some. */
#ifndef MUSTER_TEST_PORTS_H
#define MUSTER_TEST_PORTS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <unistd.h>

#include "launch/run_key.h"

/* Whether the first `count` ports of a run are free; type: SOCK_DGRAM or SOCK_STREAM. */
static inline bool ports_are_free(const char *run, int count, int type)
{
	bool all = true;
	for (int place = 0; place < count && all; place++) {
		struct sockaddr_in address = { .sin_family = AF_INET,
			.sin_port = htons((uint16_t)run_port(run_number(run), place)) };
		int fd = socket(AF_INET, type, 0);
		all = bind(fd, (struct sockaddr *)&address, sizeof address) == 0;
		close(fd);
	}
	return all;
}

#endif
