/* SPDX-License-Identifier: Apache-2.0 */
/* Whether all ranks were started with the same parameters. */
#ifndef MUSTER_SETTINGS_AGREE_H
#define MUSTER_SETTINGS_AGREE_H

#include "trainer/comm/comm.h"
#include "trainer/run/settings.h"

/* Collective: compares what makes the run the same run, and what ranks decide alone but do
 * together, such as when to save. A rank that differs from rank 0 is an error of all ranks
 * (ERR_SHARED with EXIT_USAGE) that names the option with both values. */
int settings_agree(const struct settings *settings, struct comm *comm, struct err *err);

#endif
