/* SPDX-License-Identifier: Apache-2.0 */
/* Sums up the judged steps and words the hint. */
#include "trainer/run/scaling_hint.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define WARM_UP 3    /* steps that are not judged */
#define WINDOW 20    /* steps that are judged */
#define ALLOWED 0.25 /* share of a step that a rank may wait before the hint is given */
#define MUCH 0.5     /* ratio of communication to computing from which --zero 1 is worth it */

__attribute__((format(printf, 2, 3))) static void add(char *out, const char *format, ...)
{
	size_t used = strlen(out);
	va_list args;
	va_start(args, format);
	vsnprintf(out + used, SCALING_HINT_LINE - used, format, args);
	va_end(args);
}

static void write_line(const struct scaling_hint *hint, const struct scaling_hint_facts *facts,
	const struct scaling_hint_waits *waits, char *out)
{
	const double step = 1e3 / WINDOW; /* converts seconds of all steps to milliseconds of one */
	const double share = waits->most / hint->seconds; /* may exceed 1: `most` is another rank's,
														 whose step may end a little earlier */
	*out = '\0';
	add(out,
		"scaling: %.0f%% of a step waits for communication or slower ranks (%.3g of %.3g ms on %s, "
		"steps %d to %d of this attempt): ",
		share < 1 ? 100 * share : 100, step * waits->most, step * hint->seconds, waits->most_who,
		WARM_UP + 1, WARM_UP + WINDOW);
	if (!facts->uneven && waits->most - waits->least > ALLOWED * hint->seconds)
		add(out,
			"%s computes %.3g ms longer than that one: look at what else uses its node and its "
			"CPUs (muster-doctor), or leave it out (srun's --exclude); ",
			waits->least_who, step * (waits->most - waits->least));
	add(out, "a larger --global-batch computes more between two exchanges");
	if (facts->uneven)
		add(out, "; a number of ranks that divides --slots has all ranks compute equally long");
	if (!facts->native && !facts->zero
		&& hint->communication > MUCH * (hint->seconds - hint->exposed))
		add(out,
			"; --zero 1 has half of it travel while the next step computes, for the same bits");
	if (!facts->native)
		add(out,
			"; --reduction=native --grad-dtype=bf16 sends half the bytes, for bits that depend on "
			"the number of ranks");
	else if (!facts->bf16)
		add(out, "; --grad-dtype=bf16 sends half the bytes");
}

static bool is_complete(const struct scaling_hint *hint)
{
	return hint->steps >= WARM_UP + WINDOW;
}

void scaling_hint_step(struct scaling_hint *hint, double seconds, double exposed,
	double communication)
{
	if (is_complete(hint) || ++hint->steps <= WARM_UP)
		return;
	hint->seconds += seconds;
	hint->exposed += exposed;
	hint->communication += communication;
}

double scaling_hint_waited(const struct scaling_hint *hint)
{
	return is_complete(hint) ? hint->exposed : 0;
}

bool scaling_hint_tell(struct scaling_hint *hint, const struct scaling_hint_facts *facts,
	const struct scaling_hint_waits *waits, char out[SCALING_HINT_LINE])
{
	if (!is_complete(hint) || hint->said)
		return false;
	hint->said = true;
	if (waits->most <= ALLOWED * hint->seconds)
		return false;
	write_line(hint, facts, waits, out);
	return true;
}
