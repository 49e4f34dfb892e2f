/* SPDX-License-Identifier: Apache-2.0 */
/* The interval between saves, as pure functions of the option's text, of the run's record, and of
 * the clock. */
#include "checkpoint/directory/save_schedule.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define NUMBER_MAX 9e15
#define PRIOR_SECONDS (4 * 3600.0) /* the prior: one interruption in this time is assumed */

static int refuse(const char *text, struct err *err)
{
	return err_fail(err, EXIT_USAGE,
		"--ckpt-every takes a number of steps (500), a time (90s, 10m, 2h), auto, or 0 for only at "
		"a stop and at the end, not \"%s\"",
		text);
}

int save_schedule_parse(const char *text, struct save_schedule *schedule, struct err *err)
{
	static const struct {
		const char *name;
		enum save_schedule_unit unit;
		double factor;
	} units[] = {
		{ "", SAVE_STEPS, 1 },
		{ "steps", SAVE_STEPS, 1 },
		{ "s", SAVE_SECONDS, 1 },
		{ "m", SAVE_SECONDS, 60 },
		{ "h", SAVE_SECONDS, 3600 },
	};
	const char *unit = text + strspn(text, "0123456789.");
	char *end;
	*schedule = (struct save_schedule) { .unit = SAVE_AUTO };
	if (strcmp(text, "auto") == 0)
		return 0;
	/* strtod accepts more than is meant here, such as 1e3 and 0x10: there `end` is not at the
	 * unit. */
	double number = strtod(text, &end);
	if (end == text || end != unit || number > NUMBER_MAX)
		return refuse(text, err);
	for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
		if (strcmp(unit, units[i].name) != 0
			|| (units[i].unit == SAVE_STEPS && number != floor(number)))
			continue;
		*schedule = (struct save_schedule) { .unit = number > 0 ? units[i].unit : SAVE_NEVER,
			.every = number * units[i].factor };
		return 0;
	}
	return refuse(text, err);
}

static bool same_attempt(const struct attempts_record *a, const struct attempts_record *b)
{
	return a->attempt == b->attempt && a->job == b->job && strcmp(a->cluster, b->cluster) == 0;
}

/* An attempt that finished or could not begin was not interrupted. */
static bool is_interruption(const struct attempts_record *end)
{
	return end->status != EXIT_OK && end->status != EXIT_USAGE && end->status != EXIT_DATA;
}

double save_schedule_mean_time_between(const struct attempts_record *records, size_t count,
	double now)
{
	/* The start of an attempt that has no end so far. */
	const struct attempts_record *running = NULL;
	double ran = 0;
	int interruptions = 0;
	for (size_t i = 0; i <= count; i++) {
		const struct attempts_record *record = i < count ? &records[i] : NULL;
		/* A notice is skipped, since its attempt's end counts once. The end of an attempt that
		 * another one replaced comes late, and is skipped too. */
		if (record && record->event != ATTEMPTS_START
			&& (record->event == ATTEMPTS_NOTICE || !running || !same_attempt(record, running)))
			continue;
		double until = record ? record->time : now;
		if (running && until > running->time)
			ran += until - running->time;
		if (record && running)
			interruptions += record->event == ATTEMPTS_START || is_interruption(record);
		running = record && record->event == ATTEMPTS_START ? record : NULL;
	}
	return (ran + PRIOR_SECONDS) / (interruptions + 1);
}

double save_schedule_interval(double stall, double flush, double mean)
{
	double interval = mean;
	if (stall < 2 * mean) {
		double ratio = stall / (2 * mean);
		interval = sqrt(2 * stall * mean) * (1 + sqrt(ratio) / 3 + ratio / 9) - stall;
	}
	return interval > flush ? interval : flush;
}

int save_schedule_due(const struct save_schedule *schedule, int64_t step, double since,
	double interval)
{
	switch (schedule->unit) {
	case SAVE_STEPS: return step % (int64_t)schedule->every == 0;
	case SAVE_SECONDS: return since >= schedule->every;
	case SAVE_AUTO: return since >= interval;
	case SAVE_NEVER: break;
	}
	return 0;
}
