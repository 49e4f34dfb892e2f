/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_attention and its backward pass against attention in double precision. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/shim/device.h"
#include "tests/unit/trainer/cuda/kernels/cuda_floats.h"
#include "trainer/cuda/kernels/attention.h"

#define BOUND_FP32 1e-5
#define BOUND_BF16 1e-2

struct problem {
	int B, T, H, D;
	enum cuda_type type;
};

/* Counts of elements. */
static size_t rows_of(const struct problem *p)
{
	return (size_t)p->B * (size_t)p->T * (size_t)p->H;
}
static size_t outputs_of(const struct problem *p)
{
	return rows_of(p) * (size_t)p->D;
}

/* A problem in double precision, of what the kernels read: rounded to their type. */
struct reference {
	double *qkv, *dy, *y, *lse, *dqkv;
};

/* The same on the device. */
struct operands {
	struct problem p;
	void *qkv, *dy, *y, *dqkv;
	float *lse, *scratch;
};

static double dot(const double *a, const double *b, int n)
{
	double sum = 0;
	for (int i = 0; i < n; i++)
		sum += a[i] * b[i];
	return sum;
}

/* One query t of a head: q, k, v (and their gradients) are rows of 3C, y and dy rows of C. */
static void attend(const struct reference *r, const struct problem *p, size_t qkv, size_t y,
	double *lse, int t)
{
	const size_t C = (size_t)p->H * (size_t)p->D;
	const double *q = r->qkv + qkv + (size_t)t * 3 * C, *k = r->qkv + qkv + C, *v = k + C,
				 *dy = r->dy + y + (size_t)t * C;
	double scale = 1 / sqrt(p->D), most = -INFINITY, sum = 0, *out = r->y + y + (size_t)t * C;
	double *dq = r->dqkv + qkv + (size_t)t * 3 * C, *dk = r->dqkv + qkv + C, *dv = dk + C;

	for (int s = 0; s <= t; s++)
		most = fmax(most, scale * dot(q, k + (size_t)s * 3 * C, p->D));
	for (int s = 0; s <= t; s++)
		sum += exp(scale * dot(q, k + (size_t)s * 3 * C, p->D) - most);
	*lse = most + log(sum);
	for (int s = 0; s <= t; s++)
		for (int d = 0; d < p->D; d++)
			out[d] += exp(scale * dot(q, k + (size_t)s * 3 * C, p->D) - *lse)
				* v[(size_t)s * 3 * C + (size_t)d];
	for (int s = 0; s <= t; s++) {
		size_t at = (size_t)s * 3 * C;
		double weight = exp(scale * dot(q, k + at, p->D) - *lse);
		double ds = scale * weight * (dot(dy, v + at, p->D) - dot(dy, out, p->D));
		for (int d = 0; d < p->D; d++) {
			dq[d] += ds * k[at + (size_t)d];
			dk[at + (size_t)d] += ds * q[d];
			dv[at + (size_t)d] += weight * dy[d];
		}
	}
}

static double *doubles(const float *x, size_t count)
{
	double *exact = calloc(count, sizeof *exact);
	assert_non_null(exact);
	for (size_t i = 0; x && i < count; i++)
		exact[i] = (double)x[i];
	return exact;
}

/* Fills a problem: the same numbers for the reference and the device, q, k and v of up to `size`.
 */
static void make(struct operands *o, struct reference *r, struct problem p, float size)
{
	const size_t n = outputs_of(&p), rows = rows_of(&p);
	float *qkv = cuda_floats(3 * n, size, 1, p.type), *dy = cuda_floats(n, 1, 2, p.type);

	*r = (struct reference) { doubles(qkv, 3 * n), doubles(dy, n), doubles(NULL, n),
		doubles(NULL, rows), doubles(NULL, 3 * n) };
	*o = (struct operands) { p, cuda_floats_to_device(qkv, 3 * n, p.type),
		cuda_floats_to_device(dy, n, p.type), device_make(n * cuda_type_bytes(p.type)),
		device_make(3 * n * cuda_type_bytes(p.type)), device_make(rows * sizeof(float)),
		device_make(cuda_attention_scratch(p.B, p.T, p.H)) };
	for (int b = 0; b < p.B; b++)
		for (int h = 0; h < p.H; h++)
			for (int t = 0; t < p.T; t++) {
				size_t C = (size_t)p.H * (size_t)p.D, row = (size_t)b * (size_t)p.T,
					   column = (size_t)h * (size_t)p.D;
				double *lse = r->lse + row * (size_t)p.H + (size_t)h * (size_t)p.T + t;
				attend(r, &p, row * 3 * C + column, row * C + column, lse, t);
			}
	free(qkv), free(dy);
}

static void done(struct operands *o, struct reference *r)
{
	device_free(o->qkv), device_free(o->dy), device_free(o->y), device_free(o->dqkv);
	device_free(o->lse), device_free(o->scratch);
	free(r->qkv), free(r->dy), free(r->y), free(r->lse), free(r->dqkv);
}

static void forward(void *arg)
{
	struct operands *o = arg;
	int C = o->p.H * o->p.D;
	assert_int_equal(cuda_attention(o->y, o->lse, o->qkv, o->p.B, o->p.T, C, o->p.H, o->p.type,
						 NULL),
		0);
}

static void backward(void *arg)
{
	struct operands *o = arg;
	int C = o->p.H * o->p.D;
	device_poison(o->scratch, cuda_attention_scratch(o->p.B, o->p.T, o->p.H));
	assert_int_equal(cuda_attention_backward(o->dqkv, o->scratch, o->dy, o->qkv, o->y, o->lse,
						 o->p.B, o->p.T, C, o->p.H, o->p.type, NULL),
		0);
}

/* Runs in each order leave the same bits, near the reference. */
static void check_output(const char *name, void (*run)(void *arg), struct operands *o, void *device,
	const double *expected, size_t count, enum cuda_type type, double bound)
{
	char what[100];
	void *bits = malloc(count * cuda_type_bytes(type));

	snprintf(what, sizeof what, "%s of B %d, T %d, H %d, D %d", name, o->p.B, o->p.T, o->p.H,
		o->p.D);
	device_same_in_each_order(what, run, o, bits, device, count * cuda_type_bytes(type));
	float *values = cuda_floats_of(bits, count, type);
	device_near_double(what, values, expected, count, bound);
	free(values), free(bits);
}

static void check(struct problem p)
{
	struct operands o;
	struct reference r;
	const double bound = p.type == CUDA_BF16 ? BOUND_BF16 : BOUND_FP32;

	make(&o, &r, p, 2);
	check_output("y", forward, &o, o.y, r.y, outputs_of(&p), p.type, bound);
	device_poison(o.lse, rows_of(&p) * sizeof(float));
	forward(&o);
	float *lse = malloc(rows_of(&p) * sizeof *lse);
	device_read(lse, o.lse, rows_of(&p) * sizeof *lse);
	device_near_double("lse", lse, r.lse, rows_of(&p), BOUND_FP32);
	check_output("dqkv", backward, &o, o.dqkv, r.dqkv, 3 * outputs_of(&p), p.type, bound);
	free(lse);
	done(&o, &r);
}

static void check_each_length(enum cuda_type type)
{
	static const int lengths[] = { 1, 3, 31, 33, 64, 65, 127, 129 };
	for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
		check((struct problem) { 1, lengths[i], 1, 64, type });
}

static void fp32_of_each_length(void **state)
{
	check_each_length(CUDA_FP32);
}
static void bf16_of_each_length(void **state)
{
	check_each_length(CUDA_BF16);
}

static void fp32_of_any_width(void **state)
{
	check((struct problem) { 2, 33, 3, 1, CUDA_FP32 });
	check((struct problem) { 3, 5, 2, 7, CUDA_FP32 });
	check((struct problem) { 1, 40, 2, 80, CUDA_FP32 });
	check((struct problem) { 1, 34, 1, 130, CUDA_FP32 });
}

/* Heads that fill a tile of the tensor cores, and heads that do not. */
static void bf16_of_widths_in_eights(void **state)
{
	check((struct problem) { 2, 65, 3, 8, CUDA_BF16 });
	check((struct problem) { 3, 34, 2, 48, CUDA_BF16 });
	check((struct problem) { 1, 66, 2, 80, CUDA_BF16 });
	check((struct problem) { 1, 129, 1, 128, CUDA_BF16 });
}

static void bf16_of_other_widths(void **state)
{
	check((struct problem) { 2, 33, 2, 12, CUDA_BF16 });
	check((struct problem) { 1, 34, 1, 136, CUDA_BF16 });
}

/* Of more than a hundred, whose exponentials overflow. */
static void large_scores(enum cuda_type type)
{
	const double bound = type == CUDA_BF16 ? BOUND_BF16 : BOUND_FP32;
	struct operands o;
	struct reference r;

	make(&o, &r, (struct problem) { 1, 130, 1, 64, type }, 10);
	check_output("y of large scores", forward, &o, o.y, r.y, outputs_of(&o.p), type, bound);
	check_output("dqkv of large scores", backward, &o, o.dqkv, r.dqkv, 3 * outputs_of(&o.p), type,
		bound);
	done(&o, &r);
}

static void large_scores_in_fp32(void **state)
{
	large_scores(CUDA_FP32);
}
static void large_scores_in_bf16(void **state)
{
	large_scores(CUDA_BF16);
}

/* Keys in tiles that are wholly after a query are not even multiplied by 0: NaNs there leave no
 * trace. */
static void later_tiles_are_skipped(enum cuda_type type)
{
	const struct problem p = { 1, 150, 1, 64, type };
	const size_t n = outputs_of(&p), before = 128 * 64, bytes = before * cuda_type_bytes(type);
	float *qkv = cuda_floats(3 * n, 2, 1, type);
	void *whole = malloc(bytes), *with_nan = malloc(bytes);

	for (int nan = 0; nan < 2; nan++) {
		for (size_t i = 3 * before; nan && i < 3 * n; i++)
			qkv[i] = NAN;
		struct operands o = { .p = p,
			.qkv = cuda_floats_to_device(qkv, 3 * n, type),
			.y = device_make(n * cuda_type_bytes(type)),
			.lse = device_make(rows_of(&p) * sizeof(float)) };
		forward(&o);
		device_read(nan ? with_nan : whole, o.y, bytes);
		device_free(o.qkv), device_free(o.y), device_free(o.lse);
	}
	assert_memory_equal(with_nan, whole, bytes);
	free(qkv), free(whole), free(with_nan);
}

static void later_tiles_are_skipped_in_fp32(void **state)
{
	later_tiles_are_skipped(CUDA_FP32);
}
static void later_tiles_are_skipped_in_bf16(void **state)
{
	later_tiles_are_skipped(CUDA_BF16);
}

static void no_rows_are_no_launch(void **state)
{
	assert_int_equal(cuda_attention(NULL, NULL, NULL, 0, 8, 64, 1, CUDA_BF16, NULL), 0);
	assert_int_equal(cuda_attention_backward(NULL, NULL, NULL, NULL, NULL, NULL, 2, 0, 64, 1,
						 CUDA_FP32, NULL),
		0);
}

/* The last sample of a qkv of more than 2^31 elements gives what it gives alone. */
static void last_sample_of_many(enum cuda_type type)
{
	const struct problem one = { 1, 33, 1, 64, type };
	const size_t n = outputs_of(&one), size = cuda_type_bytes(type),
				 B = ((size_t)1 << 31) / (3 * n) + 2, before = (B - 1) * n;
	const unsigned int tile = type == CUDA_BF16 ? 128 : 32, blocks = (33 + tile - 1) / tile;
	struct operands few, o = { .p = { (int)B, 33, 1, 64, type } };
	struct reference r;
	unsigned char *there = malloc(3 * n * size), *here = malloc(3 * n * size);

	make(&few, &r, one, 2);
	o.qkv = device_make_sparse(3 * B * n * size), o.dqkv = device_make_sparse(3 * B * n * size);
	o.y = device_make_sparse(B * n * size), o.dy = device_make_sparse(B * n * size);
	o.lse = device_make_sparse(B * 33 * sizeof(float)),
	o.scratch = device_make_sparse(B * 33 * sizeof(float));
	if (!o.qkv || !o.dqkv || !o.y || !o.dy || !o.lse || !o.scratch)
		skip();
	device_read(there, few.qkv, 3 * n * size);
	device_write((char *)o.qkv + 3 * before * size, there, 3 * n * size);
	device_read(there, few.dy, n * size);
	device_write((char *)o.dy + before * size, there, n * size);
	forward(&few), backward(&few);
	device_only_blocks((uint64_t)(B - 1) * blocks, blocks);
	forward(&o);
	assert_int_equal(cuda_attention_backward(o.dqkv, o.scratch, o.dy, o.qkv, o.y, o.lse, o.p.B, 33,
						 64, 1, type, NULL),
		0);
	device_only_blocks(0, 0);
	device_read(there, (char *)o.y + before * size, n * size), device_read(here, few.y, n * size);
	assert_memory_equal(there, here, n * size);
	device_read(there, (char *)o.dqkv + 3 * before * size, 3 * n * size),
		device_read(here, few.dqkv, 3 * n * size);
	assert_memory_equal(there, here, 3 * n * size);
	device_free_sparse(o.qkv, 3 * B * n * size), device_free_sparse(o.dqkv, 3 * B * n * size);
	device_free_sparse(o.y, B * n * size), device_free_sparse(o.dy, B * n * size);
	device_free_sparse(o.lse, B * 33 * sizeof(float)),
		device_free_sparse(o.scratch, B * 33 * sizeof(float));
	free(there), free(here);
	done(&few, &r);
}

static void last_sample_of_many_in_fp32(void **state)
{
	last_sample_of_many(CUDA_FP32);
}
static void last_sample_of_many_in_bf16(void **state)
{
	last_sample_of_many(CUDA_BF16);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fp32_of_each_length),
		cmocka_unit_test(fp32_of_any_width),
		cmocka_unit_test(bf16_of_each_length),
		cmocka_unit_test(bf16_of_widths_in_eights),
		cmocka_unit_test(bf16_of_other_widths),
		cmocka_unit_test(large_scores_in_fp32),
		cmocka_unit_test(large_scores_in_bf16),
		cmocka_unit_test(later_tiles_are_skipped_in_fp32),
		cmocka_unit_test(later_tiles_are_skipped_in_bf16),
		cmocka_unit_test(no_rows_are_no_launch),
		cmocka_unit_test(last_sample_of_many_in_fp32),
		cmocka_unit_test(last_sample_of_many_in_bf16),
	};
	return DEVICE_RUN_TESTS(tests, NULL, NULL);
}
