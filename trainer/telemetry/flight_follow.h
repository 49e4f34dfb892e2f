/* SPDX-License-Identifier: Apache-2.0 */
/* A copy of a record in a file that is not shared memory: on a file server, whose absence may stop
 * who stores into its file's memory, or end him with SIGBUS. A thread of its own writes the copy,
 * and it alone waits there. */
#ifndef MUSTER_FLIGHT_FOLLOW_H
#define MUSTER_FLIGHT_FOLLOW_H

#include "trainer/telemetry/flight.h"

struct flight_follow;

/* Creates or replaces the file `name` in the folder. While the record changes, the copy follows
 * twice a second. `standing` is borrowed to the end of the process, or to flight_follow_end(). NULL
 * on error. */
struct flight_follow *flight_follow_begin(const struct flight_recorder *flight, int dirfd,
	const char *name, struct err *err);

/* Ends the thread, which a file system that does not answer may delay, and removes the file. NULL
 * is allowed. */
void flight_follow_end(struct flight_follow *follow);

#endif
