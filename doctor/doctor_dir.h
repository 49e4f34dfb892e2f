/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a directory is the same one on all nodes, and writable on each. */
#ifndef MUSTER_DOCTOR_DIR_H
#define MUSTER_DOCTOR_DIR_H

#include "checks/facts.h"

/* Rank 0: makes a file named after `word` in the directory, or in its nearest existing parent if a
 * training has yet to make the directory. Returns 0, or -1 if it can't; doctor_dir_look says
 * why. */
int doctor_dir_mark(const char *dir, const char *word);
void doctor_dir_unmark(const char *dir, const char *word);

/* Any rank: looks for that file if `marked`, writes a file of its own and removes it, and fills in
 * the facts about the directory. */
void doctor_dir_look(struct facts *facts, const char *dir, const char *word, bool marked);

#endif
