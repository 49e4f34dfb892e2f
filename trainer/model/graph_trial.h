/* SPDX-License-Identifier: Apache-2.0 */
/* Whether graphs make this rank's steps shorter: its first ones are timed without, then with them.
 * Both give the same bits, so that no rank has to ask another. */
#ifndef MUSTER_GRAPH_TRIAL_H
#define MUSTER_GRAPH_TRIAL_H

#include <stdbool.h>

/* Steps of each kind: the first few are left out, in which caches fill and graphs are captured. */
#define GRAPH_TRIAL_SKIPPED 2
#define GRAPH_TRIAL_TIMED 4

/* Zeroed: nothing was timed yet. */
struct graph_trial {
	int steps;
	double least[2]; /* seconds of the shortest step without, and with */
};

/* Whether the next step is to use graphs. */
bool graph_trial_uses(const struct graph_trial *trial);
/* The step took so long. True: that was the last one, and the choice is made. */
bool graph_trial_step(struct graph_trial *trial, double seconds);

#endif
