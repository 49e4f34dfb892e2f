/* SPDX-License-Identifier: Apache-2.0 */
/* How one training does on different numbers of ranks: throughput against a perfect one, and what
 * of the communication hides behind computation, from the runs' metrics files. */
#ifndef MUSTER_SCALING_H
#define MUSTER_SCALING_H

#include <jansson.h>
#include <stdio.h>

#include "common/err.h"

/* Medians over the steps of a run's last attempt, without its first ones. Milliseconds are of a
 * step, on rank 0. */
struct scaling_run {
	int ranks, steps; /* steps that were counted */
	double rate;      /* tokens or samples a second, of all ranks together */
	double milliseconds, communication, hidden,
		exposed; /* hidden: the communication that was not waited for */
};

/* Leaves out the first `skip` steps. Status EXIT_DATA when the folder's metrics can't be read, or
 * hold no more than these. */
int scaling_read(int dirfd, int skip, struct scaling_run *run, struct err *err);

/* Against the first of the runs: by how much faster, and that divided by how many more ranks there
 * are. */
double scaling_speedup(const struct scaling_run *runs, size_t i);
double scaling_efficiency(const struct scaling_run *runs, size_t i);

/* A line with names, and one a run. */
void scaling_print(const struct scaling_run *runs, size_t count, FILE *out);
/* The speedup over the number of ranks beside a perfect one, as an SVG image. */
void scaling_plot(const struct scaling_run *runs, size_t count, FILE *out);
/* A bar for the efficiency of each. */
void scaling_bars(const struct scaling_run *runs, size_t count, FILE *out);
/* {"runs": [{"ranks", "steps", "tokens_per_second", "speedup", …}]}; NULL when out of memory. */
json_t *scaling_json(const struct scaling_run *runs, size_t count);

#endif
