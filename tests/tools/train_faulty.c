/* SPDX-License-Identifier: Apache-2.0 */
/* muster-train, built once more for the tests, with a sampler that errs: from the step behind FAULTY_STEP on, ranks of FAULTY_RANKS (a
 * list between spaces) read the places of a step that rank 0 of FAULTY_WORLD reads. The linker puts it in front of the true one
 * (--wrap). */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/sampler.h"

uint64_t __real_sampler_at(const struct sampler *sampler, uint64_t step, uint64_t place);
uint64_t __wrap_sampler_at(const struct sampler *sampler, uint64_t step, uint64_t place);

static bool errs(void)
{
	char ranks[200], mine[20];
	snprintf(ranks, sizeof ranks, " %s ", getenv("FAULTY_RANKS") ? getenv("FAULTY_RANKS") : "");
	snprintf(mine, sizeof mine, " %s ", getenv("SLURM_PROCID") ? getenv("SLURM_PROCID") : "-");
	return strstr(ranks, mine) != NULL;
}

uint64_t __wrap_sampler_at(const struct sampler *sampler, uint64_t step, uint64_t place)
{
	const char *from = getenv("FAULTY_STEP"), *world = getenv("FAULTY_WORLD");
	if (from && world && step >= strtoull(from, NULL, 10) && errs())
		place %= sampler->global_batch / strtoull(world, NULL, 10);
	return __real_sampler_at(sampler, step, place);
}
