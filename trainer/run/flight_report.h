/* SPDX-License-Identifier: Apache-2.0 */
/* When a collective has failed: each rank says where it stood, and one of them who stood where and
 * who did not answer. */
#ifndef MUSTER_FLIGHT_REPORT_H
#define MUSTER_FLIGHT_REPORT_H

#include "trainer/run/run.h"

/* Logs this rank's line, and on the lowest rank that waited when it took its leave the table of
 * all. Does not wait. */
void flight_report(const struct run *run);

#endif
