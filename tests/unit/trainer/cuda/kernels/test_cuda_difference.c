/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_difference: the largest distance and the largest number, wherever they stand; what is no
 * number is never passed over. */
#include "config.h"

#include <math.h>

#include "tests/unit/trainer/cuda/kernels/kernel_fixture.h"
#include "trainer/cuda/kernels/difference.h"

static const size_t counts[] = { 1, 3, 31, 33, 255, 257, 4096, 4097, 20001 };

struct operands {
	struct difference *parts;
	const void *a, *b;
	size_t count;
	enum cuda_type type;
};

static void run(void *arg)
{
	const struct operands *o = arg;
	assert_int_equal(cuda_difference(o->parts, o->a, o->b, o->count, o->type, NULL), 0);
}

static struct difference difference_of(const float *a, const float *b, size_t count,
	enum cuda_type type)
{
	struct difference all = { 0, 0 };
	struct operands o = { kernel_output("parts", NULL, difference_parts(count) * sizeof all, 0),
		kernel_tensor(a, count, type, 0), kernel_tensor(b, count, type, 0), count, type };
	kernel_run(run, &o);
	const struct difference *parts = kernel_result(o.parts);
	for (unsigned int i = 0; i < difference_parts(count); i++) {
		assert_true(parts[i].most >= 0 && parts[i].largest >= 0); /* none is no number */
		all.most = fmaxf(all.most, parts[i].most);
		all.largest = fmaxf(all.largest, parts[i].largest);
	}
	return all;
}

static void the_largest_are_found(void **state)
{
	for (size_t i = 0; i < 2 * sizeof counts / sizeof counts[0]; i++) {
		enum cuda_type type = i % 2 ? CUDA_BF16 : CUDA_FP32;
		size_t count = counts[i / 2], odd = count * 2 / 3;
		float *a = kernel_floats(count, 1, (uint32_t)count, type),
			  *b = kernel_floats(count, 1, (uint32_t)count, type);
		float most = 0, largest = 0;
		b[odd] = -2;
		for (size_t k = 0; k < count; k++) {
			most = fmaxf(most, fabsf(a[k] - b[k]));
			largest = fmaxf(largest, fabsf(b[k]));
		}
		struct difference d = difference_of(a, b, count, type);
		assert_true(d.most == most && d.largest == largest && largest == 2);
		d = difference_of(b, b, count, type);
		assert_true(d.most == 0 && d.largest == 2);
		b[odd] = i % 3 == 0 ? NAN : i % 3 == 1 ? INFINITY : -INFINITY;
		d = difference_of(a, b, count, type);
		assert_true(isinf(d.most) && isinf(d.largest));
		d = difference_of(b, a, count, type);
		assert_true(isinf(d.most) && isfinite(d.largest));
		d = difference_of(b, b, count, type); /* no number is equal to none */
		assert_true(isinf(d.most));
		kernel_done();
	}
}

static void no_elements_are_no_launch(void **state)
{
	assert_int_equal(difference_parts(0), 0);
	assert_int_equal(cuda_difference(NULL, NULL, NULL, 0, CUDA_FP32, NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_largest_are_found),
		cmocka_unit_test(no_elements_are_no_launch),
	};
	return DEVICE_RUN_TESTS(tests, NULL, NULL);
}
