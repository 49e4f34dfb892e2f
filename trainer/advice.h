/* SPDX-License-Identifier: Apache-2.0 */
/* Slow scaling, said once: how much of a step waits for communication, and which options shorten that. */
#ifndef MUSTER_ADVICE_H
#define MUSTER_ADVICE_H

#include <stdbool.h>

/* What can be advised depends on these. */
struct advice_facts {
	bool uneven;         /* some ranks have a slot more */
	bool tied, split;    /* a tied embedding, and --split-embedding */
	bool native, bf16;   /* --reduction, --grad-dtype */
};

/* Zeroed at the beginning of an attempt. */
struct advice {
	int steps;
	double seconds, exposed;
};

/* Adds a step of an attempt: how long it took, and for how much of that this rank waited. Returns true once, when more than a
 * quarter of the steps' time was waiting (the first steps, which warm up, do not count); `out` then has the line. */
bool advice_step(struct advice *advice, const struct advice_facts *facts, double seconds, double exposed, char out[500]);

#endif
