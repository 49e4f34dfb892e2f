/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a directory is one and the same on all nodes, and can be written on each. */
#ifndef MUSTER_DOCTOR_DIR_H
#define MUSTER_DOCTOR_DIR_H

#include "checks/facts.h"

/* Rank 0: leaves a file named after `word` in the directory (in the nearest folder above where it
 * isn't there yet, as a training makes it). Returns 0, or -1 where it can't; doctor_dir_look says
 * why. */
int doctor_dir_mark(const char *dir, const char *word);
void doctor_dir_unmark(const char *dir, const char *word);

/* Any rank: looks for that file if `marked`, writes one of its own and removes it, and fills in the
 * facts of the directory. */
void doctor_dir_look(struct facts *facts, const char *dir, const char *word, bool marked);

#endif
