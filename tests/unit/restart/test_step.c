/* SPDX-License-Identifier: Apache-2.0 */
/* restart: which ends of a step are followed by another. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "restart/step.h"

static void a_step_is_judged_by_its_ranks_and_its_status(void **state)
{
	static const struct {
		const char *what;
		struct step step;
		enum step_verdict verdict;
	} cases[] = {
		{ "finished", { .status = 0 }, STEP_OVER },
		{ "a rank was killed", { .status = 137, .first.found = true }, STEP_AGAIN },
		{ "ranks have lost a peer", { .status = 69, .first.found = true }, STEP_AGAIN },
		{ "srun itself has failed once a rank had", { .status = 1, .first.found = true },
			STEP_AGAIN },
		{ "a rank has failed for good", { .status = 1, .first.found = true, .final = true },
			STEP_OVER },
		{ "the same, among others that were killed for it",
			{ .status = 137, .first.found = true, .final = true }, STEP_OVER },
		{ "a notice", { .status = 75, .leaving = true }, STEP_OVER },
		{ "a notice, and a rank that was late", { .status = 137, .leaving = true }, STEP_OVER },
		{ "a signal came", { .status = 143, .told = true, .first.found = true }, STEP_OVER },
		{ "a node is silent", { .status = 137, .killed = true }, STEP_AGAIN },
		{ "a node is silent after a notice", { .status = 137, .killed = true, .leaving = true },
			STEP_OVER },
		{ "a node is silent after a signal", { .status = 137, .killed = true, .told = true },
			STEP_OVER },
		/* Without the plugin, srun's status is all there is. */
		{ "a rank was killed", { .status = 137 }, STEP_AGAIN },
		{ "ranks have lost a peer", { .status = 69 }, STEP_AGAIN },
		{ "a notice", { .status = 75 }, STEP_OVER },
		{ "a rank or srun has failed", { .status = 1 }, STEP_OVER },
		{ "wrong usage", { .status = 2 }, STEP_OVER },
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		print_message("# %s\n", cases[i].what);
		assert_int_equal(step_judge(&cases[i].step), cases[i].verdict);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_step_is_judged_by_its_ranks_and_its_status),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
