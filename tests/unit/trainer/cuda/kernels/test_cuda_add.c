/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_add: the bits of the CPU's addition. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "tests/shim/device.h"
#include "trainer/cuda/kernels/add.h"

#define MOST 66000

static float left[MOST], right[MOST + 1], expected[MOST], result[MOST];
static const size_t counts[] = { 0, 1, 2, 31, 32, 33, 255, 256, 257, 1023, 1025, 65537, MOST };

/* Any bits but those of a NaN, whose payload is the processor's choice: denormals, infinities and
 * both zeros too. */
static int fill(void **state)
{
	static const uint32_t special[] = { 0, 0x80000000, 1, 0x80000001, 0x007fffff, 0x00800000,
		0x7f7fffff, 0xff7fffff, 0x7f800000, 0x3f800000, 0x33800000, 0xbf800000 };
	uint32_t bits = 1;
	for (size_t i = 0; i < MOST; i++) {
		float *const pair[2] = { &left[i], &right[i + 1] };
		for (int k = 0; k < 2; k++) {
			bits = bits * 1664525 + 1013904223;
			uint32_t value = i < 144 ? special[k ? i / 12 : i % 12] : bits;
			if ((value & 0x7f800000) == 0x7f800000 && value != 0x7f800000)
				value &= 0xbfffffff;
			memcpy(pair[k], &value, sizeof value);
		}
	}
	return 0;
}

struct addition {
	float *out;
	const float *a, *b;
	size_t count;
};

static void add(void *arg)
{
	struct addition *addition = arg;
	assert_int_equal(cuda_add(addition->out, addition->a, addition->b, addition->count, NULL), 0);
}

/* Once the second operand lies at an odd element: nothing may rely on more than 4 bytes of
 * alignment. */
static void bits_of_the_cpu(void **state)
{
	for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
		size_t count = counts[c], bytes = count * sizeof(float);
		if (device_watched() && count > 100000 && count < MOST)
			continue;
		for (size_t i = 0; i < count; i++)
			expected[i] = left[i] + right[i + 1];
		float *out = device_make(bytes), *a = device_copy(left, bytes),
			  *b = device_copy(right, bytes + sizeof(float));
		device_same_in_each_order("the sum", add, &(struct addition) { out, a, b + 1, count },
			result, out, bytes);
		assert_memory_equal(result, expected, bytes);
		float *even = device_copy(right + 1, bytes);
		device_same_in_each_order("the sum", add, &(struct addition) { out, a, even, count },
			result, out, bytes);
		assert_memory_equal(result, expected, bytes);
		add(&(struct addition) { a, a, even, count });
		device_read(result, a, bytes);
		assert_memory_equal(result, expected, bytes);
		device_free(out), device_free(a), device_free(b), device_free(even);
	}
}

/* Element numbers beyond 32 bits: the block of the last elements. */
static void more_than_2_31_elements(void **state)
{
	const size_t count = ((size_t)1 << 32) + 300, bytes = count * sizeof(float), block = 1024;
	float *out = device_make_sparse(bytes), *a = device_make_sparse(bytes), last[300];
	if (!out || !a)
		skip();
	device_write(a + count - 300, left, 300 * sizeof(float));
	device_only_blocks((count - 300) / block, 1);
	add(&(struct addition) { out, a, a, count });
	device_only_blocks(0, 0);
	device_read(last, out + count - 300, sizeof last);
	for (int i = 0; i < 300; i++)
		expected[i] = left[i] + left[i];
	assert_memory_equal(last, expected, sizeof last);
	device_free_sparse(out, bytes), device_free_sparse(a, bytes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bits_of_the_cpu),
		cmocka_unit_test(more_than_2_31_elements),
	};
	return DEVICE_RUN_TESTS(tests, fill, NULL);
}
