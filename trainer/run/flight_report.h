/* SPDX-License-Identifier: Apache-2.0 */
/* Reports, after a collective has failed, where the ranks stood: each rank logs its own place, and
 * one of them the places of all, with the ranks that did not answer. */
#ifndef MUSTER_FLIGHT_REPORT_H
#define MUSTER_FLIGHT_REPORT_H

#include "trainer/run/run.h"

/* Logs this rank's line; and on the lowest rank that was waiting when it took its leave, the table
 * of all. Does not wait. */
void flight_report(const struct run *run);

#endif
