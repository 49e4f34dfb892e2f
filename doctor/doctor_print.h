/* SPDX-License-Identifier: Apache-2.0 */
/* What muster-doctor prints: one line a fault and a summary; or one JSON object; or the table of
 * checks. */
#ifndef MUSTER_DOCTOR_PRINT_H
#define MUSTER_DOCTOR_PRINT_H

#include "checks/check.h"
#include "common/err.h"

/* Both print the worst findings first. `summary` false leaves the summary to another rank. */
int doctor_print_text(const struct findings *findings, const struct checkup *checkup, bool summary,
	struct err *err);
int doctor_print_json(const struct findings *findings, const struct checkup *checkup,
	struct err *err);

/* Prints the table of checks: four lines a check (name, severity, fault, remedy), and an empty one
 * between checks. */
int doctor_print_checks(struct err *err);

#endif
