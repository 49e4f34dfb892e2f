/* SPDX-License-Identifier: Apache-2.0 */
/* Rank 0's choice of the steps that are saved: what saves cost is measured as training goes on, so
 * that --ckpt-every auto follows the disk and the interruptions that there are. All times are
 * seconds of clock_now(). */
#ifndef MUSTER_SAVE_SCHEDULER_H
#define MUSTER_SAVE_SCHEDULER_H

#include <stdbool.h>
#include <stdint.h>

#include "checkpoint/directory/save_schedule.h"

/* A value. */
struct save_scheduler {
	struct save_schedule schedule;
	double began; /* when the last save was begun, or training */
	double ordinary,
		saving; /* seconds of an ordinary step, and of one behind a save; smoothed, 0: not known */
	double stall;    /* seconds that training stood still for a save, smoothed */
	double flush;    /* seconds from the hand-over of a save until it was durable; smoothed, 0: not
						known */
	double interval; /* of SAVE_AUTO; 0: not known */
	double told;     /* interval of the last line about it */
	int steps;       /* that were seen */
};

void save_scheduler_begin(struct save_scheduler *scheduler, const struct save_schedule *schedule,
	double now);

/* Whether this step is to be saved. As long as auto knows nothing it saves early, in order to
 * measure. */
bool save_scheduler_due(const struct save_scheduler *scheduler, int64_t step, double now);

/* A save begins. */
void save_scheduler_save(struct save_scheduler *scheduler, double now);

/* A step took so long; `behind_save`: the one before was saved. */
void save_scheduler_step(struct save_scheduler *scheduler, double seconds, bool behind_save);

/* What a save costs: the seconds by which it makes the step behind it longer, but no less than
 * those for which training stood. */
double save_scheduler_cost(const struct save_scheduler *scheduler);

/* A save has become durable. `mean` seconds between interruptions
 * (save_schedule_mean_time_between). Returns true when the interval of auto differs from what it
 * was when this last said so by more than a fifth: worth a line. */
bool save_scheduler_saved(struct save_scheduler *scheduler, double stall, double flush,
	double mean);

#endif
