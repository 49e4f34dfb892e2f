/* SPDX-License-Identifier: Apache-2.0 */
/* Decides whether graphs make this rank's steps shorter: it times the first ones without, the next
 * ones with them. Both give the same bits, so each rank decides for itself. */
#ifndef MUSTER_GRAPH_TRIAL_H
#define MUSTER_GRAPH_TRIAL_H

#include <stdbool.h>

/* Steps of each kind. The first are not timed, since in them caches fill and graphs are
 * captured. */
#define GRAPH_TRIAL_SKIPPED 2
#define GRAPH_TRIAL_TIMED 4

/* Zeroed: nothing is timed yet. */
struct graph_trial {
	int steps;
	double least[2]; /* seconds of the shortest step without graphs, and with them */
};

/* Whether the next step is to use graphs. */
bool graph_trial_uses(const struct graph_trial *trial);
/* Notes a step's duration. True when this step ended the trial. */
bool graph_trial_step(struct graph_trial *trial, double seconds);

#endif
