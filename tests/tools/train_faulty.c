/* SPDX-License-Identifier: Apache-2.0 */
/* muster-train, built once more for the tests, with a sampler that errs on the ranks of
 * FAULTY_RANKS (a list between spaces): from the step after FAULTY_STEP on they read the places of
 * a step that rank 0 of FAULTY_WORLD reads; up to FAULTY_UNTIL they take FAULTY_MILLISECONDS for
 * each place. The linker puts it in front of the true one (--wrap). */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "order/sampler.h"

uint64_t __real_sampler_at(const struct sampler *sampler, uint64_t step, uint64_t place);
uint64_t __wrap_sampler_at(const struct sampler *sampler, uint64_t step, uint64_t place);

static bool errs(void)
{
	char ranks[200], mine[20];
	snprintf(ranks, sizeof ranks, " %s ", getenv("FAULTY_RANKS") ? getenv("FAULTY_RANKS") : "");
	snprintf(mine, sizeof mine, " %s ", getenv("SLURM_PROCID") ? getenv("SLURM_PROCID") : "-");
	return strstr(ranks, mine) != NULL;
}

/* The value of a variable, `otherwise` where it is not set. */
static uint64_t number(const char *name, uint64_t otherwise)
{
	return getenv(name) ? strtoull(getenv(name), NULL, 10) : otherwise;
}

uint64_t __wrap_sampler_at(const struct sampler *sampler, uint64_t step, uint64_t place)
{
	if (errs() && step < number("FAULTY_UNTIL", 0))
		usleep((useconds_t)(1000 * number("FAULTY_MILLISECONDS", 0)));
	if (errs() && step >= number("FAULTY_STEP", UINT64_MAX))
		place %= sampler->global_batch / number("FAULTY_WORLD", 1);
	return __real_sampler_at(sampler, step, place);
}
