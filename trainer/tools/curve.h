/* SPDX-License-Identifier: Apache-2.0 */
/* The loss curve of a run, merged from the metrics files of its attempts. Steps that a later
 * attempt did again replace the earlier ones, and a torn last line is dropped; so a killed run's
 * curve equals that of an undisturbed one. */
#ifndef MUSTER_CURVE_H
#define MUSTER_CURVE_H

#include <stdint.h>
#include <stdio.h>

#include "common/err.h"

struct curve_point {
	uint64_t step;
	uint32_t loss, norm, validation; /* the bits of a float */
	int has_step, has_norm, has_validation;
};

struct curve {
	struct curve_point *points; /* by ascending step */
	size_t count, room;
	int attempts; /* number of metrics files read */
};

/* Reads every metrics-N.jsonl of the folder in the order of N, and passes over lines that are no
 * point of a curve. -1 with status EXIT_DATA names the file and line that can't be read; a bad last
 * line of a file is no error. */
int curve_read(int dirfd, struct curve *curve, struct err *err);
/* The N of all metrics-N.jsonl in the folder, ascending, malloc'ed; NULL when there are none. */
int curve_attempts(int dirfd, int **attempts, size_t *count, struct err *err);
void curve_clear(struct curve *curve);

/* Prints "step loss-bits loss norm-bits norm [validation-bits validation]", one line a step; "- -"
 * for a norm that is not known. */
void curve_print(const struct curve *curve, FILE *out);

#endif
