/* SPDX-License-Identifier: Apache-2.0 */
/* Monotonic seconds, and deadlines on that clock, so that a change of the system's time moves no
 * deadline. */
#ifndef MUSTER_CLOCK_H
#define MUSTER_CLOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <time.h>

/* Seconds of CLOCK_MONOTONIC. */
double clock_now(void);

/* A moment of clock_now(). */
struct deadline {
	double at;
};

struct deadline deadline_in(double seconds);
bool deadline_passed(struct deadline deadline);

/* Seconds left, 0 when passed. */
double deadline_left(struct deadline deadline);

/* Sleeps `seconds`, through signals, but never past the deadline. Returns false when the deadline
 * has passed. */
bool deadline_sleep(struct deadline deadline, double seconds);

/* Initializes a condition variable that uses CLOCK_MONOTONIC; pthread_cond_destroy ends it. */
void deadline_condition(pthread_cond_t *condition);

/* The deadline as pthread_cond_timedwait takes it for such a condition variable. */
struct timespec deadline_timespec(struct deadline deadline);

/* Seconds since the epoch (CLOCK_REALTIME), for records that people read. */
double clock_wall(void);

/* `wall` as 2026-01-31T12:34:56.789Z; `out` holds at least 32 bytes. Returns `out`. A time outside
 * 1970 to 9999, which a file from elsewhere may hold, becomes the nearest one inside. */
char *clock_iso8601(double wall, char *out, size_t size);

/* The seconds since the epoch of such a text; 0 for anything else, and for NULL. */
double clock_from_iso8601(const char *text);

#endif
