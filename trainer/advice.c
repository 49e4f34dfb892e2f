/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/advice.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define WARM_UP 3      /* steps */
#define WINDOW 20      /* steps that are judged */
#define ALLOWED 0.25   /* share of a step */
#define LINE 500

__attribute__((format(printf, 2, 3))) static void add(char *out, const char *format, ...)
{
	size_t used = strlen(out);
	va_list args;
	va_start(args, format);
	vsnprintf(out + used, LINE - used, format, args);
	va_end(args);
}

static void write_line(const struct advice *advice, const struct advice_facts *facts, char *out)
{
	*out = '\0';
	add(out, "scaling: %.0f%% of a step waits for communication or slower ranks (%.3g of %.3g ms, steps %d to %d of this attempt): "
		"a larger --global-batch computes more between two exchanges", 100 * advice->exposed / advice->seconds,
		1e3 * advice->exposed / WINDOW, 1e3 * advice->seconds / WINDOW, WARM_UP + 1, WARM_UP + WINDOW);
	if (facts->uneven)
		add(out, "; a number of ranks that divides --slots has all ranks compute equally long");
	if (facts->tied && !facts->split)
		add(out, "; --split-embedding, in a new run, sends the largest gradient while the rest is computed");
	if (!facts->native)
		add(out, "; --reduction=native --grad-dtype=bf16 sends half the bytes, for bits that depend on the number of ranks");
	else if (!facts->bf16)
		add(out, "; --grad-dtype=bf16 sends half the bytes");
}

bool advice_step(struct advice *advice, const struct advice_facts *facts, double seconds, double exposed, char out[LINE])
{
	if (advice->steps >= WARM_UP + WINDOW || ++advice->steps <= WARM_UP)
		return false;
	advice->seconds += seconds;
	advice->exposed += exposed;
	if (advice->steps < WARM_UP + WINDOW || advice->exposed <= ALLOWED * advice->seconds)
		return false;
	write_line(advice, facts, out);
	return true;
}
