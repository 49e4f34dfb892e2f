/* SPDX-License-Identifier: Apache-2.0 */
/* Smooths the measured costs of steps and saves, and derives the interval between saves from
 * them. */
#include "trainer/run/save_scheduler.h"

#define WEIGHT 0.3 /* of a new measurement in the mean */
#define FIRST_STEPS \
	5 /* before the save that measures; the first steps of a process are not typical */
#define UNKNOWN 600.0 /* seconds between saves while none has become durable */
#define TOLD 1.2

static void smooth(double *value, double measured)
{
	*value = *value > 0 ? *value + WEIGHT * (measured - *value) : measured;
}

void save_scheduler_begin(struct save_scheduler *scheduler, const struct save_schedule *schedule,
	double now)
{
	*scheduler = (struct save_scheduler) { .schedule = *schedule, .began = now };
}

bool save_scheduler_due(const struct save_scheduler *scheduler, int64_t step, double now)
{
	if (scheduler->schedule.unit == SAVE_AUTO && scheduler->interval <= 0
		&& scheduler->steps == FIRST_STEPS)
		return true;
	return save_schedule_due(&scheduler->schedule, step, now - scheduler->began,
		scheduler->interval > 0 ? scheduler->interval : UNKNOWN);
}

void save_scheduler_save(struct save_scheduler *scheduler, double now)
{
	scheduler->began = now;
}

void save_scheduler_step(struct save_scheduler *scheduler, double seconds, bool after_save)
{
	smooth(after_save ? &scheduler->saving : &scheduler->ordinary, seconds);
	scheduler->steps++;
}

double save_scheduler_cost(const struct save_scheduler *scheduler)
{
	double gained = scheduler->saving > 0 ? scheduler->saving - scheduler->ordinary : 0;
	return gained > scheduler->stall ? gained : scheduler->stall;
}

bool save_scheduler_saved(struct save_scheduler *scheduler, double stall, double flush, double mean)
{
	smooth(&scheduler->stall, stall);
	smooth(&scheduler->flush, flush);
	scheduler->interval =
		save_schedule_interval(save_scheduler_cost(scheduler), scheduler->flush, mean);
	if (scheduler->told > 0 && scheduler->interval < scheduler->told * TOLD
		&& scheduler->interval * TOLD > scheduler->told)
		return false;
	scheduler->told = scheduler->interval;
	return scheduler->schedule.unit == SAVE_AUTO;
}
