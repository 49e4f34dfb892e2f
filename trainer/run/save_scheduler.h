/* SPDX-License-Identifier: Apache-2.0 */
/* The save scheduler: rank 0 decides with it which steps are saved. It measures what saves cost as
 * training goes on, so that --ckpt-every auto adapts to the disk and to the interruptions. All
 * times are seconds of clock_now(). */
#ifndef MUSTER_SAVE_SCHEDULER_H
#define MUSTER_SAVE_SCHEDULER_H

#include <stdbool.h>
#include <stdint.h>

#include "checkpoint/directory/save_schedule.h"

/* A value. */
struct save_scheduler {
	struct save_schedule schedule;
	double began; /* when the last save began, or training */
	double ordinary,
		saving;   /* seconds of an ordinary step, and of one after a save; smoothed, 0: not known */
	double stall; /* seconds that training stood still for a save; smoothed */
	double flush; /* seconds from a save's hand-over until it was durable; smoothed, 0: not known */
	double interval; /* seconds, for SAVE_AUTO; 0: not known */
	double told;     /* the interval when it was last reported */
	int steps;       /* number of steps seen */
};

void save_scheduler_begin(struct save_scheduler *scheduler, const struct save_schedule *schedule,
	double now);

/* Whether to save this step. As long as auto has measured nothing, it saves early in order to
 * measure. */
bool save_scheduler_due(const struct save_scheduler *scheduler, int64_t step, double now);

/* Notes that a save begins. */
void save_scheduler_save(struct save_scheduler *scheduler, double now);

/* Notes a step's duration; `after_save`: the step before it was saved. */
void save_scheduler_step(struct save_scheduler *scheduler, double seconds, bool after_save);

/* What a save costs, in seconds: how much longer the step after it is, but at least the time that
 * training stood still. */
double save_scheduler_cost(const struct save_scheduler *scheduler);

/* Notes that a save has become durable. `mean`: seconds between interruptions
 * (save_schedule_mean_time_between). Returns true when the interval of auto has changed by more
 * than a fifth since it was last reported, and should be reported again. */
bool save_scheduler_saved(struct save_scheduler *scheduler, double stall, double flush,
	double mean);

#endif
