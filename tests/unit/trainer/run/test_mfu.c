/* SPDX-License-Identifier: Apache-2.0 */
/* card: the peak of a card by its name as drivers write it, and the part of it that a training
 * uses, by sums made by hand. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "trainer/run/mfu.h"

static void assert_peak(const char *name, double tera)
{
	double peak = mfu_peak_flops(name);
	if (fabs(peak - tera * 1e12) > 1e6)
		fail_msg("%s: %g instead of %g tera", name, peak * 1e-12, tera);
}

/* Names as nvidia-smi -L shows them. */
static void peaks_by_name(void **state)
{
	assert_peak("NVIDIA H200", 989.4);
	assert_peak("NVIDIA H200 NVL", 835.5);
	assert_peak("NVIDIA H100 80GB HBM3", 989.4);
	assert_peak("NVIDIA H100 PCIe", 756);
	assert_peak("NVIDIA H100 NVL", 835.5);
	assert_peak("NVIDIA GH200 480GB", 989.4);
	assert_peak("NVIDIA A100-SXM4-40GB", 312);
	assert_peak("NVIDIA A100 80GB PCIe", 312);
	assert_peak("NVIDIA B200", 2250);
	assert_peak("NVIDIA L40S", 362.05);
	assert_peak("NVIDIA L40", 181.05);
	assert_peak("NVIDIA L4", 121);
	assert_peak("NVIDIA A10", 125);
	assert_peak("NVIDIA GeForce RTX 4090", 165.2);
}

/* A name that only looks like one of the table has no peak, and then there is no MFU. */
static void unknown_cards_have_none(void **state)
{
	static const char *const names[] = { "", "NVIDIA", "NVIDIA A10G", "Tesla V100-SXM2-16GB",
		"NVIDIA GeForce RTX 4090D", "NVIDIA H2000", "Tesla T4", "NVIDIA GeForce GTX 1080" };
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		assert_peak(names[i], 0);
	assert_true(mfu_of(1e6, 1e9, mfu_peak_flops("Tesla T4"), 1) == 0);
}

/* GPT-2 124M at 1,024 positions. */
static void utilisation_by_hand(void **state)
{
	double flops = 803261952;
	assert_true(fabs(mfu_of(500000, flops, 989.4e12, 1) - 0.40593) < 1e-5);
	assert_true(fabs(mfu_of(4 * 500000.0, flops, 989.4e12, 4) - 0.40593) < 1e-5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(peaks_by_name),
		cmocka_unit_test(unknown_cards_have_none),
		cmocka_unit_test(utilisation_by_hand),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
