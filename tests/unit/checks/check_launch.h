/* SPDX-License-Identifier: Apache-2.0 */
/* A launch as the judge sees it, for test_check: one without fault, into which a test puts one, and
 * the lines that follow. */
#ifndef MUSTER_TESTS_CHECK_LAUNCH_H
#define MUSTER_TESTS_CHECK_LAUNCH_H

#include <stdbool.h>

#include "checks/check.h"

#define RANKS 8
#define SAID_MAX 20 /* lines */

/* 8 ranks on 4 nodes, one of two GPUs each, and a Slurm as it should be. */
struct world {
	struct facts tasks[RANKS];
	struct site site;
};

extern char said[SAID_MAX][1200]; /* the lines of the last judgement */
extern bool provoked[64];         /* the rows of the table of checks that a test has seen at work */

struct world healthy(void);

/* Judges the first `count` ranks. Returns how many lines were said. */
int judge(const struct world *world, int count, bool preflight);

/* All ranks are judged, and there is just one line, which begins so and holds that. */
void says(const struct world *world, const char *begin, const char *part);

#endif
