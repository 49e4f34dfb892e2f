/* SPDX-License-Identifier: Apache-2.0 */
/* Layer normalisation on the GPU against the CPU's plain one: rows that fit into registers, that do
 * not, and that are no multiple of sixteen bytes. */
#include "config.h"

#include <string.h>

#include "tests/unit/trainer/cuda/kernels/cuda_floats.h"
#include "tests/unit/trainer/cuda/kernels/kernel_fixture.h"
#include "trainer/cuda/kernels/norm.h"

/* 17 and 33 rows have more than one part, the last one not full; test_cuda_column_sums has more of
 * them. */
static const struct shape {
	int M, C, shift;
} shapes[] = { { 1, 1, 0 }, { 3, 31, 0 }, { 2, 33, 0 }, { 5, 255, 0 }, { 9, 257, 0 },
	{ 17, 256, 0 }, { 8, 768, 0 }, { 8, 768, 1 }, { 33, 8, 0 }, { 3, 264, 0 }, { 3, 1600, 0 },
	{ 2, 2048, 0 }, { 2, 2056, 0 }, { 1, 520, 0 }, { 2, 1032, 0 }, { 1, 1288, 0 }, { 1, 1800, 0 } };

struct forward {
	void *sum, *y;
	float *mean, *rstd;
	const void *x, *add, *gamma, *beta;
	struct shape s;
	enum cuda_type type;
};

static void run_forward(void *arg)
{
	struct forward *f = arg;
	assert_int_equal(cuda_layernorm(f->sum, f->y, f->mean, f->rstd, f->x, f->add, f->gamma, f->beta,
						 f->s.M, f->s.C, f->type, NULL),
		0);
}

/* The norm is of the sum as it is stored, so the reference is given that. */
static void check_forward(struct shape s, enum cuda_type type, bool residual)
{
	const size_t M = (size_t)s.M, C = (size_t)s.C;
	const float *gamma = kernel_floats(C, 1, 1, type), *beta = kernel_floats(C, 1, 2, type);
	float *x = kernel_floats(M * C, 3, 3, type), *add = kernel_floats(M * C, 3, 4, type);
	float *y = kernel_host(M * C * 4), *mean = kernel_host(M * 4), *rstd = kernel_host(M * 4);
	struct forward f = { kernel_output_tensor("sum", NULL, residual ? M * C : 0, type, s.shift),
		kernel_output_tensor("y", NULL, M * C, type, s.shift),
		kernel_output("mean", NULL, M * 4, 0), kernel_output("rstd", NULL, M * 4, 0),
		kernel_tensor(x, M * C, type, s.shift),
		residual ? kernel_tensor(add, M * C, type, s.shift) : NULL,
		kernel_tensor(gamma, C, type, s.shift), kernel_tensor(beta, C, type, s.shift), s, type };
	kernel_run(run_forward, &f);
	for (size_t i = 0; residual && i < M * C; i++)
		x[i] += add[i];
	cuda_floats_round(x, M * C, type);
	if (residual)
		assert_memory_equal(kernel_values(f.sum, M * C, type), x, M * C * 4);
	kernel_reference()->layernorm(kernel_reference(), NULL, y, mean, rstd, x, NULL, gamma, beta,
		s.M, s.C);
	device_near("y", kernel_values(f.y, M * C, type), y, M * C, kernel_bound(type));
	device_near("rstd", kernel_result(f.rstd), rstd, M, 1e-5);
	for (size_t m = 0; m < M; m++)
		assert_true(((const float *)kernel_result(f.mean))[m] - mean[m] <= 1e-6f
			&& mean[m] - ((const float *)kernel_result(f.mean))[m] <= 1e-6f);
	kernel_done();
}

static void forward_is_the_cpus(void **state)
{
	for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
		for (int k = 0; k < 2; k++)
			check_forward(shapes[i], k ? CUDA_BF16 : CUDA_FP32, (i + (size_t)k) % 2);
}

static void sum_may_be_x(void **state)
{
	const float *x = kernel_floats(5 * 264, 3, 3, CUDA_BF16),
				*gamma = kernel_floats(264, 1, 1, CUDA_BF16);
	struct forward f = { kernel_output_tensor("x", x, 5 * 264, CUDA_BF16, 0),
		kernel_output_tensor("y", NULL, 5 * 264, CUDA_BF16, 0), kernel_output("mean", NULL, 20, 0),
		kernel_output("rstd", NULL, 20, 0), NULL, kernel_tensor(x, 5 * 264, CUDA_BF16, 0),
		kernel_tensor(gamma, 264, CUDA_BF16, 0), kernel_tensor(gamma, 264, CUDA_BF16, 0),
		{ 5, 264, 0 }, CUDA_BF16 };
	f.x = f.sum;
	kernel_run(run_forward, &f);
	const float *sum = kernel_values(f.sum, 5 * 264, CUDA_BF16);
	for (int i = 0; i < 5 * 264; i++)
		assert_true(sum[i] == 2 * x[i]);
	kernel_done();
}

struct backward {
	void *dx;
	float *dgamma, *dbeta, *scratch;
	const void *dy, *x, *gamma;
	const float *mean, *rstd;
	struct shape s;
	int accumulate_dx, accumulate;
	enum cuda_type type;
};

static void run_backward(void *arg)
{
	struct backward *b = arg;
	assert_int_equal(cuda_layernorm_backward(b->dx, b->dgamma, b->dbeta, b->scratch, b->dy, b->x,
						 b->gamma, b->mean, b->rstd, b->s.M, b->s.C, b->accumulate_dx,
						 b->accumulate, b->type, NULL),
		0);
}

static void check_backward(struct shape s, enum cuda_type type, int accumulate_dx, int accumulate)
{
	const size_t M = (size_t)s.M, C = (size_t)s.C;
	const float *gamma = kernel_floats(C, 1, 1, type), *dy = kernel_floats(M * C, 1, 2, type);
	const float *x = kernel_floats(M * C, 3, 3, type), *mean = kernel_floats(M, 1, 4, CUDA_FP32);
	const float *rstd = kernel_floats(M, 2, 5, CUDA_FP32),
				*before = kernel_floats(M * C, 1, 6, type);
	const float *sums = kernel_floats(2 * C, 1, 7, CUDA_FP32);
	float *dx = kernel_host(M * C * 4), *dgamma = kernel_host(C * 4), *dbeta = kernel_host(C * 4);
	memcpy(dx, before, M * C * 4);
	memcpy(dgamma, sums, C * 4);
	memcpy(dbeta, sums + C, C * 4);
	struct backward b = { kernel_output_tensor("dx", accumulate_dx ? before : NULL, M * C, type,
							  s.shift),
		kernel_output("dgamma", accumulate ? sums : NULL, C * 4, 0),
		kernel_output("dbeta", accumulate ? sums + C : NULL, C * 4, 0),
		kernel_output("scratch", NULL, cuda_layernorm_scratch(s.M, s.C) * 4, 0),
		kernel_tensor(dy, M * C, type, s.shift), kernel_tensor(x, M * C, type, s.shift),
		kernel_tensor(gamma, C, type, s.shift), kernel_operand(mean, M * 4, 0),
		kernel_operand(rstd, M * 4, 0), s, accumulate_dx, accumulate, type };
	kernel_run(run_backward, &b);
	kernel_reference()->layernorm_backward(kernel_reference(), dx, dgamma, dbeta, dy, x, gamma,
		mean, rstd, s.M, s.C, accumulate_dx, accumulate);
	device_near("dx", kernel_values(b.dx, M * C, type), dx, M * C, kernel_bound(type));
	device_near("dgamma", kernel_result(b.dgamma), dgamma, C, 1e-5);
	device_near("dbeta", kernel_result(b.dbeta), dbeta, C, 1e-5);
	kernel_done();
}

static void backward_is_the_cpus(void **state)
{
	for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
		for (int k = 0; k < 2; k++)
			check_backward(shapes[i], k ? CUDA_BF16 : CUDA_FP32, (int)i % 2, ((int)i / 2 + k) % 2);
}

/* The last row of 2^20 + 1 rows of 2,048 elements: after 2^31 of them. */
static void last_row_lies_beyond_2_to_the_31(void **state)
{
	const int M = (1 << 20) + 1, C = 2048;
	const size_t bytes = (size_t)M * C * 2, at = (size_t)(M - 1) * C * 2;
	char *x = device_make_sparse(bytes), *y = device_make_sparse(bytes);
	char *moments = device_make_sparse((size_t)M * 4);
	if (!x || !y || !moments)
		skip();
	const float *gamma = kernel_floats((size_t)C, 1, 1, CUDA_BF16),
				*row = kernel_floats((size_t)C, 1, 2, CUDA_BF16);
	float *expected = kernel_host((size_t)C * 4), *values = kernel_host((size_t)C * 4), mean, rstd;
	uint16_t *bits = kernel_host((size_t)C * 2);
	void *weights = kernel_tensor(gamma, (size_t)C, CUDA_BF16, 0);
	device_read(bits, kernel_tensor(row, (size_t)C, CUDA_BF16, 0), (size_t)C * 2);
	device_write(x + at, bits, (size_t)C * 2);
	device_only_blocks((uint64_t)(M - 1) / 8, 1);
	assert_int_equal(cuda_layernorm(NULL, y, (float *)moments, (float *)moments, x, NULL, weights,
						 weights, M, C, CUDA_BF16, NULL),
		0);
	device_only_blocks(0, 0);
	device_read(bits, y + at, (size_t)C * 2);
	for (int c = 0; c < C; c++)
		memcpy(&values[c], &(uint32_t) { (uint32_t)bits[c] << 16 }, 4);
	kernel_reference()->layernorm(kernel_reference(), NULL, expected, &mean, &rstd, row, NULL,
		gamma, gamma, 1, C);
	device_near("y", values, expected, (size_t)C, 1e-2);
	device_free_sparse(x, bytes);
	device_free_sparse(y, bytes);
	device_free_sparse(moments, (size_t)M * 4);
	kernel_done();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(forward_is_the_cpus),
		cmocka_unit_test(sum_may_be_x),
		cmocka_unit_test(backward_is_the_cpus),
		cmocka_unit_test(last_row_lies_beyond_2_to_the_31),
	};
	return DEVICE_RUN_TESTS(tests, NULL, NULL);
}
