/* SPDX-License-Identifier: Apache-2.0 */
/* The report of one or several runs: what its page draws, as JSON; the page; and an image of the
 * loss for documents. */
#ifndef MUSTER_REPORT_H
#define MUSTER_REPORT_H

#include <jansson.h>
#include <stddef.h>
#include <stdio.h>

#include "common/err.h"
#include "runs/run.h"

/* Points that a series keeps at most: the least and the greatest value of each stretch. */
#define REPORT_POINTS 4000
#define REPORT_SAMPLES 100 /* sample texts of a run at most */

/* Makes
 *
 *     {title, made, version, runs: [...], differences: [{run, steps, equal, first, largest}]}
 *
 * with an object for each run: {name, path, began, steps, time, medians, attempts, series, samples,
 * config, numerics}. Times are in seconds, those within a run since its `began`, which is since the
 * epoch. `series` has for each key of the metrics a list of [step, time or null, value], `samples`
 * a list of [step, text]. `differences` compares the losses of each further run with those of the
 * first. NULL when out of memory, or when a path is not UTF-8. */
json_t *report_json(const struct run *runs, size_t count, const char *title);

/* Writes one page of HTML that needs nothing else: style, programs and data are in it. */
int report_page(const json_t *report, FILE *out, struct err *err);

/* Draws the loss of all runs over the steps, where attempts resumed, and how far each further run
 * is from the first, into the file `path`, as SVG. */
int report_svg(const struct run *runs, size_t count, const char *path, struct err *err);

#endif
