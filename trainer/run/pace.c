/* SPDX-License-Identifier: Apache-2.0 */
/* Smoothed measurements, and the interval that follows from them. */
#include "trainer/run/pace.h"

#define WEIGHT 0.3       /* of a new measurement */
#define FIRST_STEPS 5    /* before the save that measures: the first steps of a process are not like the others */
#define UNKNOWN 600.0    /* seconds between saves of which none has become durable */
#define TOLD 1.2

static void smooth(double *value, double measured)
{
	*value = *value > 0 ? *value + WEIGHT * (measured - *value) : measured;
}

void pace_begin(struct pace *pace, const struct cadence *cadence, double now)
{
	*pace = (struct pace){ .cadence = *cadence, .began = now };
}

bool pace_due(const struct pace *pace, int64_t step, double now)
{
	if (pace->cadence.unit == CADENCE_AUTO && pace->interval <= 0 && pace->steps == FIRST_STEPS)
		return true;
	return cadence_due(&pace->cadence, step, now - pace->began, pace->interval > 0 ? pace->interval : UNKNOWN);
}

void pace_save(struct pace *pace, double now)
{
	pace->began = now;
}

void pace_step(struct pace *pace, double seconds, bool behind_save)
{
	smooth(behind_save ? &pace->saving : &pace->ordinary, seconds);
	pace->steps++;
}

double pace_cost(const struct pace *pace)
{
	double gained = pace->saving > 0 ? pace->saving - pace->ordinary : 0;
	return gained > pace->stall ? gained : pace->stall;
}

bool pace_saved(struct pace *pace, double stall, double flush, double mean)
{
	smooth(&pace->stall, stall);
	smooth(&pace->flush, flush);
	pace->interval = cadence_interval(pace_cost(pace), pace->flush, mean);
	if (pace->told > 0 && pace->interval < pace->told * TOLD && pace->interval * TOLD > pace->told)
		return false;
	pace->told = pace->interval;
	return pace->cadence.unit == CADENCE_AUTO;
}
