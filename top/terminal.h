/* SPDX-License-Identifier: Apache-2.0 */
/* The type of a terminal (terminfo(5)). */
#ifndef MUSTER_TERMINAL_H
#define MUSTER_TERMINAL_H

#include "common/err.h"

/* -1 with EXIT_USAGE unless TERM names a type that is known here and has a cursor that can be
 * moved. ncurses ends a program that does not ask before. */
int terminal_check(int fd, struct err *err);

#endif
