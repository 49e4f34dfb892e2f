/* SPDX-License-Identifier: Apache-2.0 */
/* Compares one training on different numbers of ranks, from the runs' metrics files: its speed
 * against a perfect one, and how much of the communication is hidden behind computing. */
#ifndef MUSTER_SCALING_H
#define MUSTER_SCALING_H

#include <jansson.h>
#include <stddef.h>
#include <stdio.h>

#include "common/err.h"

/* Medians over the steps of a run's last attempt, without its first ones. Milliseconds are of a
 * step on rank 0. */
struct scaling_run {
	int ranks, steps; /* number of steps counted */
	double rate;      /* tokens or samples a second, over all ranks */
	double milliseconds, communication, hidden,
		exposed; /* hidden: communication that no one waited for */
};

/* Reads a run and leaves out its first `skip` steps. -1 with status EXIT_DATA when the folder's
 * metrics can't be read, or hold no other steps. */
int scaling_read(int dirfd, int skip, struct scaling_run *run, struct err *err);

/* Compared with the first run: how many times as fast run i is; and that divided by how many times
 * as many ranks it has. */
double scaling_speedup(const struct scaling_run *runs, size_t i);
double scaling_efficiency(const struct scaling_run *runs, size_t i);

/* Prints a heading, and a line for each run. */
void scaling_print(const struct scaling_run *runs, size_t count, FILE *out);
/* Draws the speedup over the number of ranks, beside a perfect one, as an SVG image in the file
 * `path`. */
int scaling_plot(const struct scaling_run *runs, size_t count, const char *path, struct err *err);
/* The script of gnuplot's for that, with the numbers. */
void scaling_script(const struct scaling_run *runs, size_t count, FILE *out);
/* Prints a bar for each run's efficiency. */
void scaling_bars(const struct scaling_run *runs, size_t count, FILE *out);
/* Makes {"runs": [{"ranks", "steps", "tokens_per_second", "speedup", …}]}; NULL when out of
 * memory. */
json_t *scaling_json(const struct scaling_run *runs, size_t count);

#endif
