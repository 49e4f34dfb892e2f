/* SPDX-License-Identifier: Apache-2.0 */
/* A run on the whole of a terminal, until the user leaves it (ncurses,
 * https://invisible-island.net/ncurses). */
#ifndef MUSTER_SCREEN_H
#define MUSTER_SCREEN_H

#include "common/err.h"
#include "runs/run.h"
#include "top/view.h"

/* Shows the run, which was read, and reads what it adds every `interval` seconds. Returns 0 when
 * the user leaves, or the number of the signal that ends the program; -1 with EXIT_USAGE where the
 * terminal can't show it. The terminal is as it was, in each case. */
int screen_show(struct run *run, double interval, enum view_order order, struct err *err);

#endif
