/* SPDX-License-Identifier: Apache-2.0 */
/* How often to save: every given number of steps or seconds, or as often as pays off. */
#ifndef MUSTER_SAVE_SCHEDULE_H
#define MUSTER_SAVE_SCHEDULE_H

#include <stddef.h>
#include <stdint.h>

#include "checkpoint/directory/attempts.h"
#include "common/err.h"

enum save_schedule_unit { SAVE_NEVER, SAVE_STEPS, SAVE_SECONDS, SAVE_AUTO };

struct save_schedule {
	enum save_schedule_unit unit;
	double every; /* steps or seconds */
};

/* Parses "500", "500steps", "90s", "10m", "2h", "auto", "0" (never). 0, or -1 with status
 * EXIT_USAGE. */
int save_schedule_parse(const char *text, struct save_schedule *schedule, struct err *err);

/* Mean seconds between interruptions of a run, from its record: the time that its attempts ran,
 * divided by the number of interruptions, whether notices or crashes. An attempt without an end
 * counts up to the start of the next, the present one up to `now`. One interruption in four hours
 * is added to both as a prior. */
double save_schedule_mean_time_between(const struct attempts_record *records, size_t count,
	double now);

/* Daly's higher-order optimum (J. T. Daly, "A higher order estimate of the optimum checkpoint
 * interval for restart dumps", FGCS 22, 2006, eq. 37) for a cost of `stall` seconds per save and
 * `mean` seconds between interruptions, but no shorter than `flush`, the seconds that a save takes
 * to become durable. */
double save_schedule_interval(double stall, double flush, double mean);

/* Whether to save `step`. `since` is the seconds since the last save began, or since training did;
 * `interval` is used for SAVE_AUTO. */
int save_schedule_due(const struct save_schedule *schedule, int64_t step, double since,
	double interval);

#endif
