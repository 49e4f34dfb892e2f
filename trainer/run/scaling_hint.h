/* SPDX-License-Identifier: Apache-2.0 */
/* The scaling hint: a line, logged once, that says how much of a step waits for communication or
 * for which rank, and which options shorten that. */
#ifndef MUSTER_SCALING_HINT_H
#define MUSTER_SCALING_HINT_H

#include <stdbool.h>

#define SCALING_HINT_LINE 900

/* What the advice depends on. */
struct scaling_hint_facts {
	bool uneven;       /* some ranks have a slot more */
	bool native, bf16; /* --reduction, --grad-dtype */
	bool zero;         /* --zero */
};

/* Zeroed at the beginning of an attempt; one a rank. */
struct scaling_hint {
	int steps;
	double seconds, exposed, communication;
	bool said;
};

/* The waits of the rank that waited longest and of the one that waited least. All end a step
 * together, so the first computes least and the second most. */
struct scaling_hint_waits {
	double most, least;               /* their scaling_hint_waited() */
	const char *most_who, *least_who; /* "rank 3 on n2" */
};

/* Adds a step: its seconds, those that this rank waited, and those that it communicated, hidden or
 * not. The first steps, which warm up, and steps after the judged ones do not count. */
void scaling_hint_step(struct scaling_hint *hint, double seconds, double exposed,
	double communication);

/* Seconds that this rank waited in the judged steps; 0 before all of them are done. */
double scaling_hint_waited(const struct scaling_hint *hint);

/* Returns true once, with the line in `out`, when the judged steps are done and a rank waited for
 * more than a quarter of the time. */
bool scaling_hint_tell(struct scaling_hint *hint, const struct scaling_hint_facts *facts,
	const struct scaling_hint_waits *waits, char out[SCALING_HINT_LINE]);

#endif
