/* SPDX-License-Identifier: Apache-2.0 */
/* muster-train --plan: what a step of the run would need and send in a world that need not exist.
 */
#ifndef MUSTER_WORLD_PLAN_H
#define MUSTER_WORLD_PLAN_H

#include <stdio.h>

#include "common/err.h"
#include "trainer/run/settings.h"

/* Writes it to `out` (NULL: nowhere, but errors are found). Fits the number of slots to that world.
 * -1 with EXIT_USAGE where --plan names no world, or one that can't share a step; with EXIT_DATA
 * where a table can't be read. */
int world_plan_print(struct settings *settings, FILE *out, struct err *err);

#endif
