/* SPDX-License-Identifier: Apache-2.0 */
/* CLOCK_MONOTONIC for durations and deadlines, CLOCK_REALTIME only for records that people read. */
#include "config.h"

#include "common/clock.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static double seconds_of(clockid_t id)
{
	struct timespec ts;
	clock_gettime(id, &ts);
	return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

static struct timespec timespec_of(double seconds)
{
	double whole = floor(seconds);
	return (
		struct timespec) { .tv_sec = (time_t)whole, .tv_nsec = (long)((seconds - whole) * 1e9) };
}

double clock_now(void)
{
	return seconds_of(CLOCK_MONOTONIC);
}

double clock_wall(void)
{
	return seconds_of(CLOCK_REALTIME);
}

struct deadline deadline_in(double seconds)
{
	return (struct deadline) { clock_now() + seconds };
}

bool deadline_passed(struct deadline deadline)
{
	return clock_now() >= deadline.at;
}

double deadline_left(struct deadline deadline)
{
	double left = deadline.at - clock_now();
	return left > 0 ? left : 0;
}

bool deadline_sleep(struct deadline deadline, double seconds)
{
	double left = deadline_left(deadline);
	if (left <= 0)
		return false;
	struct timespec ts = timespec_of(clock_now() + (seconds < left ? seconds : left));
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) == EINTR)
		;
	return !deadline_passed(deadline);
}

void deadline_condition(pthread_cond_t *condition)
{
	pthread_condattr_t attributes;
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(condition, &attributes);
	pthread_condattr_destroy(&attributes);
}

struct timespec deadline_timespec(struct deadline deadline)
{
	return timespec_of(deadline.at);
}

char *clock_iso8601(double wall, char *out, size_t size)
{
	const double last = 253402300799.0; /* the end of the year 9999 */
	if (!(wall >= 0))
		wall = 0;
	if (wall > last)
		wall = last;
	time_t whole = (time_t)floor(wall);
	struct tm tm;
	gmtime_r(&whole, &tm);
	char date[24];
	strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(out, size, "%s.%03dZ", date, (int)((wall - (double)whole) * 1000));
	return out;
}

double clock_from_iso8601(const char *text)
{
	struct tm tm = { 0 };
	const char *rest = text ? strptime(text, "%Y-%m-%dT%H:%M:%S", &tm) : NULL;
	if (!rest)
		return 0;
	return (double)timegm(&tm) + (*rest == '.' ? strtod(rest, NULL) : 0);
}
