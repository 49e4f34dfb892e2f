/* SPDX-License-Identifier: Apache-2.0 */
/* Batch normalisation on the GPU against the CPU's plain one: sums in fp64 by another order,
 * element-wise parts to the bit. */
#include "config.h"

#include <math.h>
#include <string.h>

#include "tests/unit/trainer/cuda/kernels/cuda_floats.h"
#include "tests/unit/trainer/cuda/kernels/kernel_fixture.h"
#include "tests/unit/trainer/ops/ops_fixture.h"
#include "trainer/cuda/kernels/batchnorm.h"

static const struct shape {
	int M, C, shift;
} shapes[] = { { 1, 1, 0 }, { 3, 31, 0 }, { 33, 33, 0 }, { 2, 255, 0 }, { 65, 257, 0 },
	{ 257, 24, 0 }, { 257, 24, 1 }, { 31, 264, 0 } };

struct batchnorm {
	struct shape s;
	enum cuda_type type;
	double *sums;
	float *dgamma, *dbeta;
	void *out;
	const void *x, *dy, *gamma, *beta;
	const float *mean, *rstd, *means;
	const int32_t *targets;
	int accumulate;
};

static void run_moments(void *arg)
{
	struct batchnorm *b = arg;
	assert_int_equal(cuda_batchnorm_moments(b->sums, b->x, b->targets, b->s.M, b->s.C, b->type,
						 NULL),
		0);
}

static void run_relu(void *arg)
{
	struct batchnorm *b = arg;
	assert_int_equal(cuda_batchnorm_relu(b->out, b->x, b->mean, b->rstd, b->gamma, b->beta, b->s.M,
						 b->s.C, b->type, NULL),
		0);
}

static void run_sums(void *arg)
{
	struct batchnorm *b = arg;
	assert_int_equal(cuda_batchnorm_sums(b->sums, b->dgamma, b->dbeta, b->dy, b->x, b->mean,
						 b->rstd, b->targets, b->s.M, b->s.C, b->accumulate, b->type, NULL),
		0);
}

static void run_backward(void *arg)
{
	struct batchnorm *b = arg;
	assert_int_equal(cuda_batchnorm_backward(b->out, b->out, b->x, b->mean, b->rstd, b->gamma,
						 b->means, b->targets, b->s.M, b->s.C, b->type, NULL),
		0);
}

/* The same operands on the host. */
struct host {
	size_t M, C;
	float *x, *dy, *gamma, *beta, *mean, *rstd, *means;
	int32_t *targets;
};

/* Every third row does not count; with `absent` none does. */
static struct host make_host(struct shape s, enum cuda_type type, bool absent)
{
	const size_t M = (size_t)s.M, C = (size_t)s.C;
	struct host h = { M, C, kernel_floats(M * C, 3, 1, type), kernel_floats(M * C, 1, 2, type),
		kernel_floats(C, 1, 3, type), kernel_floats(C, 1, 4, type),
		kernel_floats(C, 1, 5, CUDA_FP32), kernel_floats(C, 2, 6, CUDA_FP32),
		kernel_floats(2 * C, 0.1f, 7, CUDA_FP32), kernel_host(M * 4) };
	for (size_t m = 0; m < M; m++)
		h.targets[m] = absent || m % 3 == 2 ? -1 : (int32_t)m;
	return h;
}

static struct batchnorm on_device(const struct host *h, struct shape s, enum cuda_type type)
{
	return (struct batchnorm) { .s = s,
		.type = type,
		.x = kernel_tensor(h->x, h->M * h->C, type, s.shift),
		.dy = kernel_tensor(h->dy, h->M * h->C, type, s.shift),
		.gamma = kernel_tensor(h->gamma, h->C, type, s.shift),
		.beta = kernel_tensor(h->beta, h->C, type, s.shift),
		.mean = kernel_tensor(h->mean, h->C, CUDA_FP32, 0),
		.rstd = kernel_tensor(h->rstd, h->C, CUDA_FP32, 0),
		.means = kernel_tensor(h->means, 2 * h->C, CUDA_FP32, 0),
		.targets = kernel_operand(h->targets, h->M * 4, 0) };
}

static void near(const char *what, const double *out, const double *reference, size_t count)
{
	double error = 0, size = 1e-300;
	for (size_t i = 0; i < count; i++) {
		error += (out[i] - reference[i]) * (out[i] - reference[i]);
		size += reference[i] * reference[i];
	}
	if (!(sqrt(error) <= 1e-12 * sqrt(size)))
		fail_msg("%s: off by %g", what, sqrt(error / size));
}

static void check_moments(struct shape s, enum cuda_type type, bool absent)
{
	const struct host h = make_host(s, type, absent);
	struct batchnorm b = on_device(&h, s, type);
	double *moments = kernel_host(2 * h.C * sizeof *moments);
	b.sums = kernel_output("moments", NULL, 2 * h.C * sizeof *moments, 0);
	kernel_run(run_moments, &b);
	kernel_reference()->batchnorm_moments(kernel_reference(), moments, h.x, h.targets, s.M, s.C);
	near("moments", kernel_result(b.sums), moments, 2 * h.C);
	kernel_done();
}

static void check_sums(struct shape s, enum cuda_type type, int accumulate)
{
	const struct host h = make_host(s, type, false);
	struct batchnorm b = on_device(&h, s, type);
	double *sums = kernel_host(2 * h.C * sizeof *sums);
	const float *before = kernel_floats(h.C, 1, 8, CUDA_FP32);
	float *dgamma = kernel_host(h.C * 4), *dbeta = kernel_host(h.C * 4);
	memcpy(dgamma, before, h.C * 4);
	memcpy(dbeta, before, h.C * 4);
	b.accumulate = accumulate;
	b.sums = kernel_output("sums", NULL, 2 * h.C * sizeof *sums, 0);
	b.dgamma = kernel_output("dgamma", accumulate ? before : NULL, h.C * 4, 0);
	b.dbeta = kernel_output("dbeta", accumulate ? before : NULL, h.C * 4, 0);
	kernel_run(run_sums, &b);
	kernel_reference()->batchnorm_sums(kernel_reference(), sums, dgamma, dbeta, h.dy, h.x, h.mean,
		h.rstd, h.targets, s.M, s.C, accumulate);
	near("sums", kernel_result(b.sums), sums, 2 * h.C);
	device_near("dgamma", kernel_result(b.dgamma), dgamma, h.C, 1e-5);
	device_near("dbeta", kernel_result(b.dbeta), dbeta, h.C, 1e-5);
	kernel_done();
}

static void check_elements(struct shape s, enum cuda_type type)
{
	struct host h = make_host(s, type, false);
	const size_t count = h.M * h.C;
	float *y = kernel_host(count * 4);
	struct batchnorm b = on_device(&h, s, type);
	b.out = kernel_output_tensor("y", NULL, count, type, s.shift);
	kernel_run(run_relu, &b);
	kernel_reference()->batchnorm_relu(kernel_reference(), y, h.x, h.mean, h.rstd, h.gamma, h.beta,
		s.M, s.C);
	cuda_floats_round(y, count, type);
	fixture_same_bits("y", kernel_values(b.out, count, type), y, count * 4);
	kernel_done();
	h = make_host(s, type, false);
	y = kernel_host(count * 4);
	b = on_device(&h, s, type);
	b.out = kernel_output_tensor("dx", h.dy, count, type, s.shift);
	kernel_run(run_backward, &b);
	kernel_reference()->batchnorm_backward(kernel_reference(), y, h.dy, h.x, h.mean, h.rstd,
		h.gamma, h.means, h.targets, s.M, s.C);
	cuda_floats_round(y, count, type);
	fixture_same_bits("dx", kernel_values(b.out, count, type), y, count * 4);
	kernel_done();
}

static void moments_are_the_cpus(void **state)
{
	for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
		for (int k = 0; k < 3; k++)
			check_moments(shapes[i], k ? CUDA_BF16 : CUDA_FP32, k == 2);
}

static void sums_are_the_cpus(void **state)
{
	for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
		for (int k = 0; k < 2; k++)
			check_sums(shapes[i], k ? CUDA_BF16 : CUDA_FP32, k);
}

static void elements_have_the_bits_of_the_cpu(void **state)
{
	for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
		for (int k = 0; k < 2; k++)
			check_elements(shapes[i], k ? CUDA_BF16 : CUDA_FP32);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(moments_are_the_cpus),
		cmocka_unit_test(sums_are_the_cpus),
		cmocka_unit_test(elements_have_the_bits_of_the_cpu),
	};
	return DEVICE_RUN_TESTS(tests, NULL, NULL);
}
