/* SPDX-License-Identifier: Apache-2.0 */
/* Who stands where, as a few lines however many ranks there are: ranks that stand in the same place
 * share one. */
#ifndef MUSTER_FLIGHT_TABLE_H
#define MUSTER_FLIGHT_TABLE_H

#include <stdbool.h>
#include <stddef.h>

struct flight_row {
	int rank;
	char node[64];   /* "": not known */
	char words[256]; /* the place, without times; equal words are one line */
	bool silent;     /* it did not answer: such ranks come last */
	double since; /* how many seconds it has stood there, or since which moment of the epoch; 0: not
					 known */
};

/* Takes one line without its newline. */
typedef void flight_say(void *arg, const char *line);

/* Rows are sorted in place. `moments`: `since` is a moment, of which a line tells the first; else
 * seconds, of which it tells the fewest and the most. */
void flight_table(struct flight_row *rows, size_t count, bool moments, flight_say *say, void *arg);

#endif
