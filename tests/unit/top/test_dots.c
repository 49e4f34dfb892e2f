/* SPDX-License-Identifier: Apache-2.0 */
/* dots: a curve is drawn whole, from edge to edge, in any size. */
#include "config.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "top/dots.h"

#define MOST 1000

static bool is_set(const struct dots *dots, int x, int y)
{
	static const int bits[4][2] = { { 0x01, 0x08 }, { 0x02, 0x10 }, { 0x04, 0x20 },
		{ 0x40, 0x80 } };
	return dots->cells[y / 4][x / 2] & bits[y % 4][x % 2];
}

/* The first and the last row that has a dot in column x; they have all those between. */
static void stretch(const struct dots *dots, int x, int *top, int *bottom)
{
	*top = -1;
	for (int y = 0; y < 4 * dots->height; y++) {
		if (!is_set(dots, x, y))
			continue;
		*top = *top < 0 ? y : *top;
		assert_true(*top == y || is_set(dots, x, y - 1));
		*bottom = y;
	}
	assert_true(*top >= 0);
}

static void a_curve_is_whole(void **state)
{
	static double values[MOST];
	struct dots dots;
	unsigned seed = 1;
	(void)state;
	for (int round = 0; round < 2000; round++) {
		const int width = 1 + rand_r(&seed) % 100, height = 1 + rand_r(&seed) % 5;
		const size_t count = 1 + (size_t)rand_r(&seed) % MOST;
		int top, bottom, before_top = 0, before_bottom = 0, highest = 100, lowest = -1;
		for (size_t i = 0; i < count; i++)
			values[i] = (rand_r(&seed) % 1000 - 500) * pow(10, rand_r(&seed) % 20);
		dots_draw(&dots, values, count, width, height);
		for (int x = 0; x < 2 * width; x++) {
			stretch(&dots, x, &top, &bottom);
			/* It goes on from the column before. */
			assert_true(x == 0 || (top <= before_bottom + 1 && bottom >= before_top - 1));
			before_top = top;
			before_bottom = bottom;
			highest = top < highest ? top : highest;
			lowest = bottom > lowest ? bottom : lowest;
		}
		assert_true(
			dots.least < dots.most ? highest == 0 && lowest == 4 * height - 1 : highest == lowest);
	}
}

static void what_falls_is_drawn_falling(void **state)
{
	double values[300];
	struct dots dots;
	int top, bottom, before = 0;
	(void)state;
	for (int i = 0; i < 300; i++)
		values[i] = 300 - i;
	dots_draw(&dots, values, 300, 50, 4);
	assert_true(is_set(&dots, 0, 0) && is_set(&dots, 99, 15));
	for (int x = 0; x < 100; x++) {
		stretch(&dots, x, &top, &bottom);
		assert_true(bottom >= before);
		before = bottom;
	}
}

/* More than there is room for is cut. */
static void rows_are_characters(void **state)
{
	const double values[] = { 1, 5, 2, 8, 3, 3, 1 };
	struct dots dots;
	(void)state;
	for (int width = 1; width < 2 * DOTS_WIDTH; width += 7) {
		dots_draw(&dots, values, 7, width, 2 * DOTS_HEIGHT);
		assert_int_equal(dots.height, DOTS_HEIGHT);
		for (int row = 0; row < dots.height; row++) {
			char text[4 * DOTS_WIDTH] = "", plain[4 * DOTS_WIDTH] = "";
			FILE *out = fmemopen(text, sizeof text, "w");
			dots_print(&dots, row, true, out);
			fclose(out);
			out = fmemopen(plain, sizeof plain, "w");
			dots_print(&dots, row, false, out);
			fclose(out);
			int characters = 0;
			for (const char *at = text; *at; at += *at == ' ' ? 1 : 3, characters++)
				assert_true(*at == ' ' || strncmp(at, "\xe2\xa0", 2) == 0
					|| (at[0] == '\xe2' && (unsigned char)at[1] <= 0xa3));
			assert_int_equal(characters, strlen(plain));
			assert_true(characters <= dots.width);
			assert_int_equal(strspn(plain, " .:'"), strlen(plain));
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(a_curve_is_whole),
		cmocka_unit_test(what_falls_is_drawn_falling), cmocka_unit_test(rows_are_characters) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
