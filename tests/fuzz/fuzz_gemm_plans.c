/* SPDX-License-Identifier: Apache-2.0 */
/* libFuzzer harness of the products' text, which comes from a checkpoint or from another rank: it
 * is refused with one line, or what was read says the same again, and no size in it is out of its
 * range. */
#include <stdlib.h>
#include <string.h>

#include "trainer/cuda/host/gemm_plans.h"

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size);

static void check(const struct gemm_plans *plans, const char *text)
{
	char *again = gemm_plans_encode(plans);
	for (size_t i = 0; i < plans->count; i++) {
		const struct gemm_choice *row = &plans->rows[i];
		if (row->gemm.rows < 1 || row->gemm.columns < 1 || row->gemm.depth < 1
			|| row->workspace > GEMM_PLANS_WORKSPACE || gemm_plans_find(plans, &row->gemm) != row)
			abort();
	}
	if (!again || strcmp(again, text) != 0)
		abort();
	free(again);
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
	char *text = malloc(size + 1);
	struct gemm_plans plans;
	struct err err = { 0 };
	memcpy(text, bytes, size);
	text[size] = '\0';
	if (gemm_plans_decode(text, &plans, &err) == 0)
		check(&plans, text);
	else if (err.status != EXIT_DATA && plans.count < GEMM_PLANS_MAX)
		abort();
	gemm_plans_clear(&plans);
	free(text);
	return 0;
}
