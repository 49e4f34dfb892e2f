/* SPDX-License-Identifier: Apache-2.0 */
/* Adds up the parts and words the refusal. */
#include "trainer/run/estimate.h"

#include <stdio.h>

static const char *const names[ESTIMATE_PARTS] = { "weights", "weights to compute with", "moments",
	"gradients", "pieces of other ranks and NCCL", "activations", "scratch" };

struct estimate estimate_of(const struct estimate_facts *facts)
{
	struct estimate estimate = { .bytes = {
									 [ESTIMATE_WEIGHTS] = (uint64_t)facts->elements * sizeof(float),
									 [ESTIMATE_COMPUTE] = facts->element_size == sizeof(float)
										 ? 0
										 : (uint64_t)facts->elements * facts->element_size,
									 [ESTIMATE_MOMENTS] = 2 * (uint64_t)facts->own * sizeof(float),
									 [ESTIMATE_GRADIENTS] =
										 (uint64_t)facts->arenas * facts->gradients * sizeof(float),
									 [ESTIMATE_STAGING] = facts->staging,
									 [ESTIMATE_ACTIVATIONS] = facts->activations,
									 [ESTIMATE_SCRATCH] = facts->scratch,
								 } };
	for (int part = 0; part < ESTIMATE_PARTS; part++)
		estimate.sum += estimate.bytes[part];
	return estimate;
}

char *estimate_text(const struct estimate *estimate, char *out, size_t size)
{
	size_t n = 0;
	*out = '\0';
	for (int part = 0; part < ESTIMATE_PARTS && n < size; part++)
		if (estimate->bytes[part])
			n += (size_t)snprintf(out + n, size - n, "%s%s %.1f MB", n ? ", " : "", names[part],
				(double)estimate->bytes[part] * 1e-6);
	return out;
}

int estimate_check(const struct estimate *estimate, uint64_t available, int share, struct err *err)
{
	char parts[300], others[60] = "";
	if (estimate->sum <= available / (uint64_t)share)
		return 0;
	if (share > 1)
		snprintf(others, sizeof others, " for each of the %d ranks that share it", share);
	return err_fail(err, EXIT_USAGE,
		"memory: this run doesn't fit into its GPU: it needs %.1f MB (%s), and %.1f MB are free%s: "
		"a smaller --microbatch or --recompute block (of GPT-2) needs less for activations, --zero "
		"1 with several ranks less for moments, fewer --slots a rank fewer gradients",
		(double)estimate->sum * 1e-6, estimate_text(estimate, parts, sizeof parts),
		(double)(available / (uint64_t)share) * 1e-6, others);
}
