/* SPDX-License-Identifier: Apache-2.0 */
/* Rank 0's choice of the steps that are saved: what saves cost is measured as training goes on, so that --ckpt-every auto
 * follows the disk and the interruptions that there are. All times are seconds of clock_now(). */
#ifndef MUSTER_PACE_H
#define MUSTER_PACE_H

#include <stdbool.h>
#include <stdint.h>

#include "checkpoint/directory/cadence.h"

/* A value. */
struct pace {
	struct cadence cadence;
	double began;            /* when the last save was begun, or training */
	double ordinary, saving; /* seconds of an ordinary step, and of one behind a save; smoothed, 0: not known */
	double stall;            /* seconds that training stood still for a save, smoothed */
	double flush;            /* seconds from the hand-over of a save until it was durable; smoothed, 0: not known */
	double interval;         /* of CADENCE_AUTO; 0: not known */
	double told;             /* interval of the last line about it */
	int steps;               /* that were seen */
};

void pace_begin(struct pace *pace, const struct cadence *cadence, double now);

/* Whether this step is to be saved. As long as auto knows nothing it saves early, in order to measure. */
bool pace_due(const struct pace *pace, int64_t step, double now);

/* A save begins. */
void pace_save(struct pace *pace, double now);

/* A step took so long; `behind_save`: the one before was saved. */
void pace_step(struct pace *pace, double seconds, bool behind_save);

/* What a save costs: the seconds by which it makes the step behind it longer, but no less than those for which training stood. */
double pace_cost(const struct pace *pace);

/* A save has become durable. `mean` seconds between interruptions (cadence_mean_time_between). Returns true when the
 * interval of auto differs from what it was when this last said so by more than a fifth: worth a line. */
bool pace_saved(struct pace *pace, double stall, double flush, double mean);

#endif
