/* SPDX-License-Identifier: Apache-2.0 */
/* Copies a flight record to a file that is not mapped, for a file server: if that does not answer,
 * a store into a mapped file may block, or end the process with SIGBUS. A thread of its own writes
 * the copy, and only that thread waits. */
#ifndef MUSTER_FLIGHT_FOLLOW_H
#define MUSTER_FLIGHT_FOLLOW_H

#include "telemetry/flight.h"

struct flight_follow;

/* Creates or replaces the file `name` in the folder. While the record changes, the copy is updated
 * twice a second. Borrows `flight` until flight_follow_end() or the end of the process. NULL on
 * error. */
struct flight_follow *flight_follow_begin(const struct flight_recorder *flight, int dirfd,
	const char *name, struct err *err);

/* Ends the thread, which may take long if the file system does not answer, and with `remove`
 * removes the file; otherwise it has the record as it is now. `follow` may be NULL. */
void flight_follow_end(struct flight_follow *follow, bool remove);

#endif
