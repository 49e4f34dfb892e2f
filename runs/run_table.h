/* SPDX-License-Identifier: Apache-2.0 */
/* What one attempt, or several merged, logged of each step: a table of numbers, read from
 * metrics-N.jsonl (doc/metrics-format.md). It keeps all keys that have numbers, also those of which
 * no version of Muster knows. */
#ifndef MUSTER_RUN_TABLE_H
#define MUSTER_RUN_TABLE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/err.h"

#define RUN_TABLE_COLUMNS 64 /* further keys are left out */
#define RUN_TABLE_NAME_SIZE 48

/* A key and its value in each row; NAN where the row has none. Two keys are renamed: "time" is in
 * seconds since the epoch, and "validation_time" is that of a line with a validation. The values of
 * an object have its key in front: "checkpoint.stall", with "checkpoint.time" for the line's own.
 * Booleans are 0 or 1, and bits ("loss_bits") the number that their digits make. */
struct run_column {
	char name[RUN_TABLE_NAME_SIZE];
	double *values;
};

struct run_table {
	uint64_t *steps; /* of each row, ascending */
	size_t count, room;
	struct run_column columns[RUN_TABLE_COLUMNS];
	int width;
	json_t *samples; /* [step, text] of each sample text, ascending; NULL: there is none */
	double time;     /* of the last line, seconds since the epoch; 0: not known */
	size_t bad_line; /* the first line that is no object with a step or without one; 0: there is
						none. A torn last line does not count. */
};

/* Reads the lines of a metrics file, and passes over bad ones. All lines of a step make one row. -1
 * when out of memory; the table is to be cleared then, too. */
int run_table_parse(const char *text, size_t size, struct run_table *table, struct err *err);

/* The same from the folder's metrics-ATTEMPT.jsonl. */
int run_table_read(int dirfd, int attempt, struct run_table *table, struct err *err);

/* The same for what was added behind the first *read bytes, whose number it brings up to date; a
 * last line without its newline is left for the next call. For run_table_merge(): the lines of an
 * attempt are in the order of their steps. errno ESTALE if the file has become shorter. */
int run_table_read_more(int dirfd, int attempt, off_t *read, struct run_table *table,
	struct err *err);

/* The N of all metrics-N.jsonl in the folder, ascending, malloc'ed; NULL when there are none. */
int run_table_list(int dirfd, int **attempts, size_t *count, struct err *err);

/* Adds a later attempt: from its first step with a loss on, its rows take the place of those of
 * `into`. */
int run_table_merge(struct run_table *into, const struct run_table *from, struct err *err);

/* The values of a column; NULL when there is none of that name. */
const double *run_table_column(const struct run_table *table, const char *name);

/* One value; NAN when there is none. */
double run_table_value(const struct run_table *table, const char *name, size_t row);

void run_table_clear(struct run_table *table);

/* Whether a column of this name has the bits of floats. */
bool run_table_is_bits(const char *name);

/* The median of `count` values, which are sorted by it; NAN for none. */
double run_table_median(double *values, size_t count);

#endif
