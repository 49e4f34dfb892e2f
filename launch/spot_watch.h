/* SPDX-License-Identifier: Apache-2.0 */
/* Hears of it when a cloud is about to take this node away: runs muster-notice, and gives notice
 * (NOTICE_SPOT) as soon as that says so. */
#ifndef MUSTER_SPOT_WATCH_H
#define MUSTER_SPOT_WATCH_H

#include <stdbool.h>

#include "common/err.h"
#include "common/ident.h"

/* Starts it on the first rank of each node, once in a process; `source` as in spot_source.h, NULL:
 * the variable's. Returns 0 where there is nothing to watch, too. Status EXIT_USAGE where `source`
 * can't be used, or names one and muster-notice is not installed; with "auto" that is only told. */
int spot_watch_begin(const struct ident *ident, const char *source, struct err *err);

/* Ends it; `durable`: what comes after this process resumes from here, so that Azure need not wait
 * any longer. Takes 6 seconds at most, and that only after a notice. */
void spot_watch_end(bool durable);

#endif
