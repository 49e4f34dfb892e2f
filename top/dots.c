/* SPDX-License-Identifier: Apache-2.0 */
/* Sets the dots of a curve. */
#include "top/dots.h"

#include <math.h>
#include <string.h>

/* The bits of the dots in a character, from the top, left and right
 * (https://www.unicode.org/charts/PDF/U2800.pdf). */
static const unsigned char bits[4][2] = { { 0x01, 0x08 }, { 0x02, 0x10 }, { 0x04, 0x20 },
	{ 0x40, 0x80 } };
#define UPPER (0x01 | 0x08 | 0x02 | 0x10)

static double mean(const double *values, size_t from, size_t to)
{
	double sum = 0;
	for (size_t i = from; i < to; i++)
		sum += values[i];
	return sum / (double)(to - from);
}

/* Sets the dots of column x from y to that of the column before, so that the curve is not torn. */
static void set(struct dots *dots, int x, int y, int before)
{
	const int step = before > y ? 1 : -1;
	do
		dots->cells[y / 4][x / 2] |= bits[y % 4][x % 2];
	while (y != before && (y += step) != before);
}

void dots_draw(struct dots *dots, const double *values, size_t count, int width, int height)
{
	*dots = (struct dots) { .width = width < DOTS_WIDTH ? width : DOTS_WIDTH,
		.height = height < DOTS_HEIGHT ? height : DOTS_HEIGHT,
		.least = INFINITY,
		.most = -INFINITY };
	double means[2 * DOTS_WIDTH];
	const int columns = 2 * dots->width, rows = 4 * dots->height;
	for (int x = 0; x < columns; x++) {
		const size_t from = (size_t)x * count / (size_t)columns;
		const size_t to = ((size_t)x + 1) * count / (size_t)columns;
		means[x] = mean(values, from, to > from ? to : from + 1);
		dots->least = fmin(dots->least, means[x]);
		dots->most = fmax(dots->most, means[x]);
	}
	const double range = dots->most - dots->least;
	for (int x = 0, before = -1; x < columns; x++) {
		const double part = range > 0 ? (dots->most - means[x]) / range : 0.5;
		const int y = (int)lround(part * (rows - 1));
		set(dots, x, y, before < 0 ? y : before);
		before = y;
	}
}

void dots_print(const struct dots *dots, int row, bool unicode, FILE *out)
{
	const unsigned char *cells = dots->cells[row];
	int end = dots->width;
	while (end > 0 && cells[end - 1] == 0)
		end--;
	for (int x = 0; x < end; x++) {
		if (!cells[x])
			fputc(' ', out);
		else if (unicode) /* U+2800 and its dots, in UTF-8 */
			fprintf(out, "\xe2%c%c", 0xa0 | cells[x] >> 6, 0x80 | (cells[x] & 0x3f));
		else
			fputc(!(cells[x] & UPPER) ? '.' : cells[x] & ~UPPER ? ':' : '\'', out);
	}
}
