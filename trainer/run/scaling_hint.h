/* SPDX-License-Identifier: Apache-2.0 */
/* Slow scaling, said once: how much of a step waits for communication, or for which rank, and which
 * options shorten that. */
#ifndef MUSTER_SCALING_HINT_H
#define MUSTER_SCALING_HINT_H

#include <stdbool.h>

#define SCALING_HINT_LINE 900

/* What can be advised depends on these. */
struct scaling_hint_facts {
	bool uneven;       /* some ranks have a slot more */
	bool native, bf16; /* --reduction, --grad-dtype */
	bool zero;         /* --zero */
};

/* Zeroed at the beginning of an attempt, on each rank. */
struct scaling_hint {
	int steps;
	double seconds, exposed, communication;
	bool said;
};

/* The sums of the ranks that waited longest and shortest: all end a step together, so the one
 * computes least and the other most. */
struct scaling_hint_waits {
	double most, least;               /* scaling_hint_waited() of theirs */
	const char *most_who, *least_who; /* "rank 3 on n2" */
};

/* Adds a step of an attempt: how long it took, for how much of that this rank waited, and how long
 * it communicated, hidden or not. The first steps, which warm up, and those behind the ones that
 * are judged do not count. */
void scaling_hint_step(struct scaling_hint *hint, double seconds, double exposed,
	double communication);

/* Seconds that this rank waited in the steps that are judged; 0 before all of them are done. */
double scaling_hint_waited(const struct scaling_hint *hint);

/* Returns true once, when the sums are there and a rank waited for more than a quarter of the time;
 * `out` then has the line. */
bool scaling_hint_tell(struct scaling_hint *hint, const struct scaling_hint_facts *facts,
	const struct scaling_hint_waits *waits, char out[SCALING_HINT_LINE]);

#endif
