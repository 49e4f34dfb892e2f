/* SPDX-License-Identifier: Apache-2.0 */
/* The loss curve of a run, merged from the metrics files of its attempts: what a later attempt did
 * again replaces what an earlier one did, and a torn last line is dropped. A killed run's curve
 * equals that of an undisturbed one. */
#ifndef MUSTER_CURVE_H
#define MUSTER_CURVE_H

#include <stdint.h>
#include <stdio.h>

#include "common/err.h"

struct curve_point {
	uint64_t step;
	uint32_t loss, norm, validation; /* bits of a float */
	int has_step, has_validation;
};

struct curve {
	struct curve_point *points; /* ascending steps */
	size_t count, room;
	int attempts; /* metrics files that were read */
};

/* Reads every metrics-N.jsonl of the folder in the order of N. Status EXIT_DATA names file and line
 * of what can't be read, except the last line of a file. */
int curve_read(int dirfd, struct curve *curve, struct err *err);
/* The N of all metrics-N.jsonl of the folder, ascending, malloc'ed; NULL when there are none. */
int curve_attempts(int dirfd, int **attempts, size_t *count, struct err *err);
void curve_clear(struct curve *curve);

/* "step loss-bits loss norm-bits norm [validation-bits validation]", one line a step. */
void curve_print(const struct curve *curve, FILE *out);

#endif
