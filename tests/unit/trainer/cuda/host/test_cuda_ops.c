/* SPDX-License-Identifier: Apache-2.0 */
/* Every operation of the GPU's table against the CPU's plain one, at odd sizes, in each precision:
 * test_gpu_ops on the GPU and with its cuBLASLt, test_cuda_ops on the host with stand-ins. */
#include "config.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#ifdef HAVE_CUBLAS
#include "tests/shim/device.h"
#include "tests/unit/trainer/cuda/host/op_device.h"
#include "tests/unit/trainer/cuda/host/op_run.h"

#define PLAIN_BOUND 1e-5
#define NARROW_BOUND 1e-2
/* tf32 keeps 10 bits of each factor's fraction. Rounded, a factor is off by 2^-11 at most and a
 * third of that squared on average, a product of two by 4e-4; a part that is cut off and not
 * rounded makes it twice that. */
#define TF32_BOUND 1e-3

static const struct op_sizes sizes[] = {
	{ .B = 1, .T = 1, .C = 8, .H = 1, .V = 3, .F = 5, .P = 1 },
	{ .B = 3, .T = 5, .C = 12, .H = 3, .V = 19, .F = 31, .P = NORM_BLOCK },
	{ .B = 2, .T = 33, .C = 33, .H = 3, .V = 131, .F = 57, .P = 2 * NORM_BLOCK + 255 },
	{ .B = 1, .T = 129, .C = 64, .H = 2, .V = 257, .F = 255, .P = 1023 },
};
#define SIZES (sizeof sizes / sizeof sizes[0])

static double bound_of(const struct op_case *op, enum gemm_mode mode)
{
	return mode == GEMM_MODE_BF16             ? NARROW_BOUND
		: mode == GEMM_MODE_TF32 && op->depth ? TF32_BOUND
											  : PLAIN_BOUND;
}

static struct ops *ops_of(enum gemm_mode mode, const struct op_sizes *s)
{
	struct ops *ops = op_device_create(mode);
	op_run_prepare(ops, s);
	return ops;
}

/* How far it is from the CPU's, and in which operand. */
static double far_from_the_cpu(struct ops *ops, const struct op_case *op, const struct op_sizes *s,
	uint32_t seed, const char **worst)
{
	struct err err = { 0 };
	struct ops *cpu = ops_cpu_create(true, &err);
	struct op_run reference, run;
	assert_non_null(cpu);
	op_run_prepare(cpu, s);
	op_run_begin(&reference, cpu, op, s, seed, ops->element, NULL);
	op_run_begin(&run, ops, op, s, seed, ops->element, &reference);
	op_run_once(&reference);
	op_run_once(&run);
	double far = op_run_distance(&run, &reference, worst);
	op_run_end(&run);
	op_run_end(&reference);
	cpu->destroy(cpu);
	return far;
}

static void like_the_cpu(enum gemm_mode mode)
{
	for (size_t k = 0; k < SIZES; k++) {
		struct ops *ops = ops_of(mode, &sizes[k]);
		int wrong = 0;
		for (size_t i = 0; i < op_case_count; i++) {
			const struct op_case *op = &op_cases[i];
			const char *worst = "";
			if (!op_is_there(op, ops))
				continue;
			double far = far_from_the_cpu(ops, op, &sizes[k], (uint32_t)(i + 1), &worst),
				   bound = bound_of(op, mode);
			if (far <= bound)
				continue;
			print_message(
				"# %s at sizes %zu: %s is off by %.3g of its norm, at most %.3g allowed\n",
				op->name, k, worst, far, bound);
			wrong++;
		}
		ops->destroy(ops);
		if (wrong)
			fail_msg("%d operations are wrong at sizes %zu: see above", wrong, k);
	}
}

static void fp32_is_like_the_cpu(void **state)
{
	like_the_cpu(GEMM_MODE_FP32);
}
static void tf32_is_like_the_cpu(void **state)
{
	like_the_cpu(GEMM_MODE_TF32);
}
static void bf16_is_like_the_cpu(void **state)
{
	like_the_cpu(GEMM_MODE_BF16);
}

static bool has_case(size_t function)
{
	for (size_t i = 0; i < op_case_count; i++)
		if (op_cases[i].function == function)
			return true;
	return false;
}

/* Operations are together in struct ops: a new one needs its case. */
static void every_op_has_a_case(void **state)
{
	struct ops *ops = ops_of(GEMM_MODE_BF16, &sizes[0]);
	for (size_t at = offsetof(struct ops, embedding); at <= offsetof(struct ops, zero);
		 at += sizeof(void *)) {
		void *function;
		memcpy(&function, (char *)ops + at, sizeof function);
		if (function && !has_case(at))
			fail_msg("the operation at byte %zu of struct ops has no case in op_cases.c", at);
	}
	ops->destroy(ops);
}

/* ---- what is wrong is told ---- */

static struct ops right;

static void add_short(struct ops *ops, float *out, const float *a, const float *b, size_t count)
{
	right.add(ops, out, a, b, count - 1);
}

static void add_wrong(struct ops *ops, float *out, const float *a, const float *b, size_t count)
{
	right.add(ops, out, a, b, count);
	right.add(ops, out, out, out, 1);
}

static double distance_with(
	void (*add)(struct ops *, float *, const float *, const float *, size_t))
{
	const char *worst = "";
	size_t i = 0;
	struct ops *ops = ops_of(GEMM_MODE_FP32, &sizes[3]);
	right = *ops;
	ops->add = add;
	while (op_cases[i].function != offsetof(struct ops, add))
		i++;
	double far = far_from_the_cpu(ops, &op_cases[i], &sizes[3], 1, &worst);
	ops->destroy(ops);
	assert_string_equal(worst, "out");
	return far;
}

static void a_wrong_element_is_told(void **state)
{
	assert_true(distance_with(add_short) == HUGE_VAL);
	assert_true(distance_with(add_wrong) > PLAIN_BOUND);
	struct ops *ops = ops_of(GEMM_MODE_FP32, &sizes[3]);
	assert_true(distance_with(ops->add) == 0);
	ops->destroy(ops);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_op_has_a_case),
		cmocka_unit_test(a_wrong_element_is_told),
		cmocka_unit_test(fp32_is_like_the_cpu),
		cmocka_unit_test(tf32_is_like_the_cpu),
		cmocka_unit_test(bf16_is_like_the_cpu),
	};
	return DEVICE_RUN_TESTS(tests, NULL, NULL);
}
#else
#include "tests/unit/skip_main.h"

SKIP_MAIN("this build has no cuBLASLt")
#endif
