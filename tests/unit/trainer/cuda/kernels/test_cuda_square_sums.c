/* SPDX-License-Identifier: Apache-2.0 */
/* The blocks of the gradient norm on the GPU: the bits of the CPU's plain ones. */
#include "config.h"

#include <math.h>

#include "tests/unit/trainer/cuda/kernels/kernel_fixture.h"
#include "tests/unit/trainer/ops/ops_fixture.h"
#include "trainer/cuda/kernels/square_sums.h"

static const size_t counts[] = { 1, 3, 31, 33, 63, 64, 65, 255, 257, 4095, 4096, 4097, 8 * 4096,
	8 * 4096 + 1, 20001 };

struct sums {
	double *sums;
	const float *x;
	size_t count;
};

static void run(void *arg)
{
	struct sums *a = arg;
	assert_int_equal(cuda_square_sums(a->sums, a->x, a->count, NULL), 0);
}

static void check(size_t count, int shift, float odd)
{
	const size_t bytes = (count + NORM_BLOCK - 1) / NORM_BLOCK * sizeof(double);
	float *x = kernel_floats(count, 1, (uint32_t)count, CUDA_FP32);
	double *expected = kernel_host(bytes);
	x[count / 2] = odd; /* far from the others: another order would round elsewhere */
	struct sums a = { kernel_output("sums", NULL, bytes, 0),
		kernel_tensor(x, count, CUDA_FP32, shift), count };
	kernel_run(run, &a);
	kernel_reference()->square_sums(kernel_reference(), expected, x, count);
	fixture_same_bits("sums", kernel_result(a.sums), expected, bytes);
	kernel_done();
}

static void sums_have_the_bits_of_the_cpu(void **state)
{
	for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
		check(counts[i], 0, 3e7f);
		check(counts[i], 1, 1e-30f);
		check(counts[i], 0, INFINITY);
	}
}

static void no_elements_are_no_launch(void **state)
{
	assert_int_equal(cuda_square_sums(NULL, NULL, 0, NULL), 0);
}

static void last_block_lies_beyond_2_to_the_31(void **state)
{
	const size_t count = ((size_t)1 << 31) + 5, blocks = (count + NORM_BLOCK - 1) / NORM_BLOCK,
				 bytes = blocks * sizeof(double);
	float *x = device_make_sparse(count * 4);
	double *sums = device_make_sparse(bytes), last;
	const float three = 3;
	if (!x || !sums)
		skip();
	device_write(x + count - 1, &three, 4);
	device_only_blocks((blocks - 1) / 8, 1);
	assert_int_equal(cuda_square_sums(sums, x, count, NULL), 0);
	device_only_blocks(0, 0);
	device_read(&last, sums + blocks - 1, sizeof last);
	assert_true(last == 9);
	device_free_sparse(x, count * 4);
	device_free_sparse(sums, bytes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sums_have_the_bits_of_the_cpu),
		cmocka_unit_test(no_elements_are_no_launch),
		cmocka_unit_test(last_block_lies_beyond_2_to_the_31),
	};
	return DEVICE_RUN_TESTS(tests, NULL, NULL);
}
