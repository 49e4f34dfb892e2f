/* SPDX-License-Identifier: Apache-2.0 */
/* Draws with gnuplot (http://www.gnuplot.info), which need only be there when someone wants a
 * drawing. */
#ifndef MUSTER_GNUPLOT_H
#define MUSTER_GNUPLOT_H

#include "common/err.h"

/* Runs a script of gnuplot's, and writes what it draws to the file `path`; NULL: to standard
 * output. The script sets the terminal, and no output. -1 names what gnuplot says, or its package
 * where there is none. */
int gnuplot_draw(const char *script, const char *path, struct err *err);

#endif
