/* SPDX-License-Identifier: Apache-2.0 */
/* The sum of losses on the GPU: the bits of the CPU's. */
#include "config.h"

#include <math.h>

#include "tests/unit/trainer/cuda/kernels/kernel_fixture.h"
#include "tests/unit/trainer/ops/ops_fixture.h"
#include "trainer/cuda/kernels/sum_losses.h"

static const size_t counts[] = { 0, 1, 3, 31, 255, 256, 257, 511, 4097, 65535, 65536, 65537,
	70001 };

struct sum {
	double *sum;
	const float *losses;
	size_t count;
	int accumulate;
};

static void run(void *arg)
{
	struct sum *a = arg;
	assert_int_equal(cuda_sum_losses(a->sum, a->losses, a->count, a->accumulate, NULL), 0);
}

/* Magnitudes so far apart that fp64 rounds, and another order rounds elsewhere. */
static void check(size_t count, int shift, float odd)
{
	float *losses = kernel_floats(count + 1, 1, (uint32_t)count, CUDA_FP32);
	for (size_t i = 0; i < count; i++)
		losses[i] = losses[i] * losses[i] * (i % 5 ? 1e-9f : 1e9f);
	losses[count / 2] = odd;
	for (int accumulate = 0; accumulate < 2; accumulate++) {
		double before = 1.0 / 3, expected = before;
		struct sum a = { kernel_output("sum", accumulate ? &before : NULL, sizeof before, 0),
			kernel_tensor(losses, count + 1, CUDA_FP32, shift), count, accumulate };
		kernel_run(run, &a);
		kernel_reference()->sum_losses(kernel_reference(), &expected, losses, count, accumulate);
		fixture_same_bits("sum", kernel_result(a.sum), &expected, sizeof expected);
	}
	kernel_done();
}

static void sums_have_the_bits_of_the_cpu(void **state)
{
	for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
		check(counts[i], 0, 3e17f);
		check(counts[i], 1, 1e-30f);
	}
	check(1000, 0, INFINITY);
	check(1000, 0, -0.0f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sums_have_the_bits_of_the_cpu),
	};
	return DEVICE_RUN_TESTS(tests, NULL, NULL);
}
