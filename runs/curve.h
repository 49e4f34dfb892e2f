/* SPDX-License-Identifier: Apache-2.0 */
/* The loss curve of a run, merged from the metrics files of its attempts. Steps that a later
 * attempt did again replace the earlier ones, and a torn last line is dropped; so a killed run's
 * curve equals that of an undisturbed one. */
#ifndef MUSTER_CURVE_H
#define MUSTER_CURVE_H

#include <stddef.h>
#include <stdio.h>

#include "common/err.h"
#include "runs/run_table.h"

/* Reads every metrics-N.jsonl of the folder in the order of N; *attempts becomes their number. -1
 * with status EXIT_DATA names the file and line that can't be read; a bad last line of a file is no
 * error. */
int curve_read(int dirfd, struct run_table *curve, size_t *attempts, struct err *err);

/* Prints "step loss-bits loss norm-bits norm [validation-bits validation]", one line a step that
 * has a loss; "- -" for a norm that is not known. */
void curve_print(const struct run_table *curve, FILE *out);

enum curve_format { CURVE_CSV, CURVE_JSONL };

/* Prints all columns of the curve for other programs: a heading and a line a step, with nothing for
 * a value that there is none of (CSV, RFC 4180); or an object a step (JSON Lines). Bits are eight
 * hexadecimal digits. -1 when out of memory. */
int curve_export(const struct run_table *curve, enum curve_format format, FILE *out,
	struct err *err);

/* Draws the loss on standard output as text, with gnuplot, as wide as the terminal there. */
int curve_plot(const struct run_table *curve, struct err *err);

#endif
