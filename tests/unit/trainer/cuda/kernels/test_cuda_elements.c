/* SPDX-License-Identifier: Apache-2.0 */
/* Element-wise kernels on the GPU: against fp64 where there is an exponential, else the bits of the
 * CPU. */
#include "config.h"

#include <math.h>
#include <string.h>

#include "tests/unit/trainer/cuda/kernels/cuda_floats.h"
#include "tests/unit/trainer/cuda/kernels/kernel_fixture.h"
#include "tests/unit/trainer/ops/ops_fixture.h"
#include "trainer/cuda/kernels/elements.h"

static const struct shape {
	int M, N, shift;
} shapes[] = { { 1, 1, 0 }, { 3, 31, 0 }, { 9, 33, 0 }, { 1, 255, 0 }, { 2, 257, 0 },
	{ 17, 264, 0 }, { 17, 264, 1 }, { 3, 1600, 0 } };
static const size_t counts[] = { 1, 3, 31, 33, 255, 257, 1024, 1031, 4099 };

static double gelu(double x)
{
	return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

static double gelu_derivative(double x)
{
	double t = tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
	return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
}

static double activation_of(double x, enum cuda_activation activation)
{
	return activation == CUDA_GELU ? gelu(x) : activation == CUDA_RELU && x < 0 ? 0 : x;
}

struct activation {
	void *y, *pre;
	const void *x, *bias;
	struct shape s;
	enum cuda_activation activation;
	enum cuda_type type;
};

static void run_activation(void *arg)
{
	struct activation *a = arg;
	assert_int_equal(cuda_activation(a->y, a->pre, a->x, a->bias, a->s.M, a->s.N, a->activation,
						 a->type, NULL),
		0);
}

/* Values to 12 reach where the tanh is one. */
static void check_activation(struct shape s, enum cuda_activation activation, bool with_bias,
	bool with_pre, enum cuda_type type)
{
	const size_t N = (size_t)s.N, count = (size_t)s.M * N;
	float *x = kernel_floats(count, 12, 1, type), *bias = kernel_floats(N, 2, 2, type);
	double *y = kernel_host(count * sizeof *y);
	x[0] = 1; /* a single value must not be one whose GELU is nothing */
	struct activation a = { kernel_output_tensor("y", NULL, count, type, s.shift),
		with_pre ? kernel_output_tensor("pre", NULL, count, type, s.shift) : NULL,
		kernel_tensor(x, count, type, s.shift),
		with_bias ? kernel_tensor(bias, N, type, s.shift) : NULL, s, activation, type };
	kernel_run(run_activation, &a);
	for (size_t i = 0; i < count; i++)
		x[i] += with_bias ? bias[i % N] : 0;
	cuda_floats_round(x, count, type);
	for (size_t i = 0; i < count; i++)
		y[i] = activation_of((double)x[i], activation);
	if (with_pre)
		fixture_same_bits("pre", kernel_values(a.pre, count, type), x, count * 4);
	device_near_double("y", kernel_values(a.y, count, type), y, count,
		activation == CUDA_GELU ? kernel_bound(type) : 0);
	kernel_done();
}

static void activation_is_that_of_the_sum(void **state)
{
	for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
		for (int k = 0; k < 8; k++)
			check_activation(shapes[i], (enum cuda_activation)((int)i + k) % 3, k % 2, k / 2 % 2,
				k / 4 ? CUDA_BF16 : CUDA_FP32);
}

static void run_in_place(void *arg)
{
	struct activation *a = arg;
	assert_int_equal(cuda_activation(a->y, NULL, a->y, a->bias, 1, 1, a->activation, a->type, NULL),
		0);
}

/* What is no number stays none, and beyond all exponentials there are limits, not their quotient.
 */
static void extremes_are_kept(void **state)
{
	static const float in[] = { NAN, -INFINITY, INFINITY, -1e4f, 1e4f, -0.0f };
	static const float relu[] = { NAN, 0, INFINITY, 0, 1e4f, -0.0f };
	const float zero = 0;
	for (int i = 0; i < 6; i++) {
		struct activation a = { .y = kernel_output_tensor("y", &in[i], 1, CUDA_FP32, 0),
			.activation = CUDA_RELU,
			.bias = kernel_tensor(&zero, 1, CUDA_FP32, 0),
			.type = CUDA_FP32 };
		kernel_run(run_in_place, &a);
		float y = *(const float *)kernel_result(a.y);
		assert_true(isnan(in[i]) ? isnan(y) : y == relu[i]);
		a.activation = CUDA_GELU;
		kernel_run(run_in_place, &a);
		y = *(const float *)kernel_result(a.y);
		assert_true(isnan(in[i]) ? isnan(y) : i == 1 ? isnan(y) || y == 0 : y == relu[i]);
		kernel_done();
	}
}

struct gradient {
	void *dx;
	const void *saved;
	size_t count;
	bool relu;
	enum cuda_type type;
};

/* In place, as the backward pass of a layer runs it. */
static void run_gradient(void *arg)
{
	struct gradient *g = arg;
	assert_int_equal(g->relu ? cuda_relu_backward(g->dx, g->dx, g->saved, g->count, g->type, NULL)
							 : cuda_gelu_backward(g->dx, g->dx, g->saved, g->count, g->type, NULL),
		0);
}

static void check_gradient(size_t count, bool relu, enum cuda_type type, int shift)
{
	const float *dy = kernel_floats(count, 1, 1, type);
	float *saved = kernel_floats(count, 6, 2, type);
	double *dx = kernel_host(count * sizeof *dx);
	saved[0] = 0;
	struct gradient g = { kernel_output_tensor("dx", dy, count, type, shift),
		kernel_tensor(saved, count, type, shift), count, relu, type };
	kernel_run(run_gradient, &g);
	for (size_t i = 0; i < count; i++)
		dx[i] = relu ? (saved[i] > 0 ? (double)dy[i] : 0)
					 : (double)dy[i] * gelu_derivative((double)saved[i]);
	device_near_double(relu ? "relu" : "gelu", kernel_values(g.dx, count, type), dx, count,
		relu ? 0 : kernel_bound(type));
	kernel_done();
}

static void gradients_are_those_in_fp64(void **state)
{
	for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
		for (int k = 0; k < 8; k++)
			check_gradient(counts[i], k % 2, k / 2 % 2 ? CUDA_BF16 : CUDA_FP32, k / 4);
}

struct fill {
	void *out;
	const float *x; /* NULL: zeros */
	size_t count;
};

static void run_widen(void *arg)
{
	struct fill *f = arg;
	assert_int_equal(cuda_from_bf16(f->out, f->x, f->count, NULL), 0);
}

static void run_fill(void *arg)
{
	struct fill *f = arg;
	assert_int_equal(f->x ? cuda_to_bf16(f->out, f->x, f->count, NULL)
						  : cuda_zero(f->out, f->count, NULL),
		0);
}

static void check_fill(size_t count, int shift)
{
	float *x = kernel_floats(count, 1, 1, CUDA_FP32);
	x[count - 1] = 1.00390625f; /* half way between two: the even one is below */
	struct fill zero = { .out = kernel_output_tensor("zero", NULL, count, CUDA_FP32, shift),
		.count = count };
	kernel_run(run_fill, &zero);
	fixture_same_bits("zero", kernel_result(zero.out), kernel_host(count * 4), count * 4);
	kernel_done();
	x = kernel_floats(count, 1, 1, CUDA_FP32);
	x[count - 1] = 1.00390625f;
	struct fill narrow = { kernel_output_tensor("bf16", NULL, count, CUDA_BF16, shift),
		kernel_tensor(x, count, CUDA_FP32, shift), count };
	kernel_run(run_fill, &narrow);
	cuda_floats_round(x, count, CUDA_BF16);
	fixture_same_bits("bf16", kernel_values(narrow.out, count, CUDA_BF16), x, count * 4);
	assert_true(x[count - 1] == 1);
	kernel_done();
	x = kernel_floats(count, 1, 1, CUDA_BF16);
	struct fill widen = { kernel_output_tensor("fp32", NULL, count, CUDA_FP32, shift),
		kernel_tensor(x, count, CUDA_BF16, shift), count };
	kernel_run(run_widen, &widen);
	fixture_same_bits("fp32", kernel_values(widen.out, count, CUDA_FP32), x, count * 4);
	kernel_done();
}

static void zeros_and_bf16_have_the_bits_of_the_cpu(void **state)
{
	for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
		for (int shift = 0; shift < 2; shift++)
			check_fill(counts[i], shift);
	assert_int_equal(cuda_zero(NULL, 0, NULL) | cuda_to_bf16(NULL, NULL, 0, NULL)
			| cuda_from_bf16(NULL, NULL, 0, NULL),
		0);
	assert_int_equal(cuda_gelu_backward(NULL, NULL, NULL, 0, CUDA_BF16, NULL)
			| cuda_relu_backward(NULL, NULL, NULL, 0, CUDA_FP32, NULL),
		0);
}

/* The last elements of 2^31 + 3, by both ways of counting: flat, and by rows. */
static void last_elements_lie_beyond_2_to_the_31(void **state)
{
	const size_t count = ((size_t)1 << 31) + 3, rows = 3 * (((size_t)1 << 30) + 1);
	uint16_t *x = device_make_sparse(rows * 2), *y = device_make_sparse(rows * 2), last[3];
	const uint16_t value[3] = { 0x3f80, 0xbf80, 0x4000 };
	if (!x || !y)
		skip();
	device_write(x + count - 3, value, 6);
	device_only_blocks((count / 8) / 256, 1);
	assert_int_equal(cuda_relu_backward(y, x, x, count, CUDA_BF16, NULL), 0);
	device_read(last, y + count - 3, 6);
	assert_true(last[0] == 0x3f80 && last[1] == 0 && last[2] == 0x4000);
	device_write(x + rows - 3, value, 6);
	device_only_blocks((rows / 3 - 1) / 8, 1);
	assert_int_equal(cuda_activation(y, NULL, x, NULL, (int)(rows / 3), 3, CUDA_RELU, CUDA_BF16,
						 NULL),
		0);
	device_only_blocks(0, 0);
	device_read(last, y + rows - 3, 6);
	assert_true(last[0] == 0x3f80 && last[1] == 0 && last[2] == 0x4000);
	device_free_sparse(x, rows * 2);
	device_free_sparse(y, rows * 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(activation_is_that_of_the_sum),
		cmocka_unit_test(extremes_are_kept),
		cmocka_unit_test(gradients_are_those_in_fp64),
		cmocka_unit_test(zeros_and_bf16_have_the_bits_of_the_cpu),
		cmocka_unit_test(last_elements_lie_beyond_2_to_the_31),
	};
	return DEVICE_RUN_TESTS(tests, NULL, NULL);
}
