/* SPDX-License-Identifier: Apache-2.0 */
/* bf16 and the wrapped instructions: rounding of every value, and matrices that come out as they
 * should. */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/shim/device.h"
#include "tests/shim/ptx_samples.h"

#define VALUES 65536

static uint32_t state_bits = 1;

static uint32_t next(void)
{
	state_bits = state_bits * 1664525 + 1013904223;
	return state_bits >> 8;
}

static float float_at(uint32_t bits)
{
	float value;
	memcpy(&value, &bits, sizeof value);
	return value;
}

static uint32_t bits_at(float value)
{
	uint32_t bits;
	memcpy(&bits, &value, sizeof bits);
	return bits;
}

static float of_bf16(uint16_t bits)
{
	return float_at((uint32_t)bits << 16);
}

/* The bf16 next to x, by distances in fp64 and not by the bits that the code under test adds.
 * Infinity stands where the next power of two would. */
static uint16_t nearest(float x)
{
	if (isnan(x))
		return 0x7fff;
	uint16_t below = (uint16_t)(bits_at(x) >> 16), above = (uint16_t)(below + 1);
	if (isinf(x) || of_bf16(below) == x)
		return below;
	double low = fabs((double)of_bf16(below)),
		   high = (above & 0x7fff) == 0x7f80 ? 0x1p128 : fabs((double)of_bf16(above));
	double to_low = fabs((double)x) - low, to_high = high - fabs((double)x);
	return to_low < to_high || (to_low == to_high && below % 2 == 0) ? below : above;
}

/* Of each bf16 value: itself, and what lies between it and the next one, next to the middle and at
 * it. */
static void fill(float *x)
{
	static const uint32_t low[] = { 0, 1, 0x4000, 0x7fff, 0x8000, 0x8001, 0xc000, 0xffff };
	for (uint32_t i = 0; i < VALUES; i++)
		for (uint32_t k = 0; k < 8; k++)
			x[8 * i + k] = float_at(i << 16 | low[k]);
}

static void every_value_to_bf16(void **state)
{
	size_t count = 8 * VALUES;
	float *in = malloc(count * sizeof *in);
	uint16_t *out = malloc(count * sizeof *out);
	fill(in);
	float *from = device_copy(in, count * sizeof *in);
	uint16_t *to = device_make(count * sizeof *out);
	for (int way = 0; way < 3; way++) {
		device_poison(to, count * sizeof *out);
		assert_int_equal(way == 2 ? sample_pairs((uint32_t *)to, from, count / 2)
								  : sample_bf16(to, from, count, way),
			0);
		device_read(out, to, count * sizeof *out);
		for (size_t i = 0; i < count; i++)
			if (out[i] != nearest(in[i]))
				fail_msg("0x%08x became 0x%04x, not 0x%04x", bits_at(in[i]), out[i],
					nearest(in[i]));
	}
	device_free(from), device_free(to);
	free(in), free(out);
}

static void every_value_to_float(void **state)
{
	static uint16_t in[VALUES];
	static float out[VALUES];
	for (uint32_t i = 0; i < VALUES; i++)
		in[i] = (uint16_t)i;
	uint16_t *from = device_copy(in, sizeof in);
	float *to = device_make(sizeof out);
	for (int by_eight = 0; by_eight < 2; by_eight++) {
		device_poison(to, sizeof out);
		assert_int_equal(sample_float(to, from, VALUES, by_eight), 0);
		device_read(out, to, sizeof out);
		for (uint32_t i = 0; i < VALUES; i++)
			assert_int_equal(bits_at(out[i]), i << 16);
	}
	device_free(from), device_free(to);
}

/* Small whole numbers, of which every sum is exact, so that a wrong element shows however the GPU
 * sums. */
static void fill_matrix(uint16_t *m, int count)
{
	for (int i = 0; i < count; i++)
		m[i] = (uint16_t)(bits_at((float)(next() % 17) - 8) >> 16);
}

struct gemm {
	float *d;
	uint16_t *a, *b;
	int way; /* 0: by hand; 1, 2: by ldmatrix */
};

static void run_product(void *arg)
{
	struct gemm *p = arg;
	const float ones[128] = { [0 ... 127] = 1 };
	if (p->way == 0)
		device_write(p->d, ones, sizeof ones);
	assert_int_equal(p->way == 0 ? sample_mma(p->d, p->a, p->b)
								 : sample_mma_by_ldmatrix(p->d, p->a, p->b, p->way == 2),
		0);
}

static void products(void **state)
{
	uint16_t a[256], b[128];
	float d[128];
	for (int way = 0; way < 3; way++)
		for (int round = 0; round < 20; round++) {
			fill_matrix(a, 256);
			fill_matrix(b, 128);
			struct gemm p = { device_make(sizeof d), device_copy(a, sizeof a),
				device_copy(b, sizeof b), way };
			device_same_in_each_order("the product", run_product, &p, d, p.d, sizeof d);
			for (int i = 0; i < 128; i++) {
				float sum = way == 0;
				for (int k = 0; k < 16; k++)
					sum += of_bf16(a[i / 8 * 16 + k]) * of_bf16(b[k * 8 + i % 8]);
				if (d[i] != sum)
					fail_msg("D[%d][%d] is %g, not %g, in way %d", i / 8, i % 8, (double)d[i],
						(double)sum, way);
			}
			device_free(p.d), device_free(p.a), device_free(p.b);
		}
}

/* PTX ISA, "ldmatrix": lane l gets in its r[m] the elements 2(l % 4) and the next of row,
 * transposed of column, l / 4 of matrix m. */
static void matrices_from_shared_memory(void **state)
{
	uint16_t m[4][8][8];
	uint32_t r[32][4];
	for (int i = 0; i < 256; i++)
		(&m[0][0][0])[i] = (uint16_t)next();
	uint16_t *from = device_copy(m, sizeof m);
	uint32_t *to = device_make(sizeof r);
	for (int way = 0; way < 4; way++) {
		int count = way % 2 ? 4 : 2, transposed = way / 2;
		assert_int_equal(sample_ldmatrix(to, from, count, transposed), 0);
		device_read(r, to, sizeof r);
		for (int l = 0; l < 32; l++)
			for (int i = 0; i < 4; i++) {
				int g = l / 4, t = l % 4;
				uint32_t low = transposed ? m[i][2 * t][g] : m[i][g][2 * t];
				uint32_t high = transposed ? m[i][2 * t + 1][g] : m[i][g][2 * t + 1];
				assert_int_equal(r[l][i], i < count ? high << 16 | low : 0);
			}
	}
	device_free(from), device_free(to);
}

struct copying {
	uint32_t *out, *in;
	size_t count, valid;
	unsigned int threads;
};

static void run_copy(void *arg)
{
	struct copying *c = arg;
	assert_int_equal(sample_copy(c->out, c->in, c->count, c->valid, c->threads, true, true), 0);
}

static void copies_under_way(void **state)
{
	enum { COUNT = 7 * 4 * 96 };
	static uint32_t in[COUNT], out[COUNT];
	for (int i = 0; i < COUNT; i++)
		in[i] = next();
	for (size_t valid = 4; valid <= COUNT; valid = valid * 3 + 4) {
		/* Exactly what is read: a copy that is not valid reads nothing. */
		struct copying c = { device_make(sizeof out), device_copy(in, valid * 4), COUNT, valid,
			96 };
		device_same_in_each_order("the copy", run_copy, &c, out, c.out, sizeof out);
		for (size_t i = 0; i < COUNT; i++)
			assert_int_equal(out[i], i < valid ? in[i] : 0);
		device_free(c.out), device_free(c.in);
	}
}

/* On the GPU these would be wrong now and then, or kill the process: on the host they are so for
 * sure. */
static void faults_of_copies(void **state)
{
	enum { COUNT = 4 * 64 };
	static uint32_t in[COUNT], out[COUNT];
	if (device_orders() == 1) /* the GPU, or races that the thread sanitizer would tell of */
		skip();
	for (int i = 0; i < COUNT; i++)
		in[i] = (uint32_t)i;
	uint32_t *from = device_copy(in, sizeof in), *to = device_make(sizeof out);
	for (int missing = 0; missing < 2; missing++) {
		int wrong = 0;
		for (int order = 0; order < device_orders(); order++) {
			device_order(order);
			assert_int_equal(sample_copy(to, from, COUNT, COUNT, 64, missing == 0, missing == 1),
				0);
			device_read(out, to, sizeof out);
			wrong += memcmp(in, out, sizeof in) != 0;
		}
		device_order(0);
		assert_in_range(wrong, 1, device_orders());
	}
	assert_int_not_equal(sample_ldmatrix_at(8), 0);
	assert_int_not_equal(sample_ldmatrix_at(512), 0);
	assert_int_equal(sample_ldmatrix_at(496), 0);
	assert_int_equal(sample_copy_at(from, 48), 0);
	assert_int_not_equal(sample_copy_at(from + 1, 0), 0);
	assert_int_not_equal(sample_copy_at(from, 8), 0);
	assert_int_not_equal(sample_copy_at(from, 64), 0);
	device_free(from), device_free(to);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_value_to_bf16),
		cmocka_unit_test(every_value_to_float),
		cmocka_unit_test(products),
		cmocka_unit_test(matrices_from_shared_memory),
		cmocka_unit_test(copies_under_way),
		cmocka_unit_test(faults_of_copies),
	};
	return DEVICE_RUN_TESTS(tests, NULL, NULL);
}
