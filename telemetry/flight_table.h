/* SPDX-License-Identifier: Apache-2.0 */
/* Prints where all ranks stand in a few lines, however many ranks there are: ranks in the same
 * place share a line. */
#ifndef MUSTER_FLIGHT_TABLE_H
#define MUSTER_FLIGHT_TABLE_H

#include <stdbool.h>
#include <stddef.h>

struct flight_row {
	int rank;
	char node[64];   /* "": not known */
	char words[256]; /* the place, without times; equal words share a line */
	bool silent;     /* the rank did not answer; such ranks come last */
	double since; /* seconds that it has stood there, or the moment (seconds since the epoch) since
					 when; 0: not known */
};

/* Takes one line without its newline. */
typedef void flight_say(void *arg, const char *line);

/* Sorts rows in place. With `moments`, `since` is a moment, and a line tells the earliest; else it
 * is seconds, and a line tells the fewest and the most. */
void flight_table(struct flight_row *rows, size_t count, bool moments, flight_say *say, void *arg);

#endif
