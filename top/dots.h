/* SPDX-License-Identifier: Apache-2.0 */
/* A curve in characters: each has two by four dots (Unicode's Braille patterns), or where there is
 * no Unicode an upper and a lower one. */
#ifndef MUSTER_DOTS_H
#define MUSTER_DOTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define DOTS_WIDTH 200 /* most characters in a row */
#define DOTS_HEIGHT 8

/* A value. */
struct dots {
	int width, height;                            /* in characters */
	unsigned char cells[DOTS_HEIGHT][DOTS_WIDTH]; /* the lowest bits of U+2800 … U+28FF */
	double least, most;                           /* the values at the lower and the upper edge */
};

/* Draws `count` finite values, at least one, from left to right. Each column of dots has the mean
 * of those that fall into it. */
void dots_draw(struct dots *dots, const double *values, size_t count, int width, int height);

/* Prints a row, from 0 at the top, without spaces at its end. */
void dots_print(const struct dots *dots, int row, bool unicode, FILE *out);

#endif
