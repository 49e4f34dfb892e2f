/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_cross_entropy against double precision; and how the head goes over its rows. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/shim/device.h"
#include "tests/unit/trainer/cuda/kernels/cuda_floats.h"
#include "trainer/cuda/kernels/cross_entropy.h"
#include "trainer/cuda/kernels/head.h"

#define LOSS_SCALE 0.375f

struct problem {
	size_t M;
	int V, pitch;
	float size; /* of the logits */
	enum cuda_type type;
};

static size_t bytes_of(const struct problem *p)
{
	return p->M * (size_t)p->pitch * cuda_type_bytes(p->type);
}

struct operands {
	struct problem p;
	const void *host; /* the logits, which a run overwrites */
	void *logits;
	float *losses;
	int32_t *targets;
	struct step_params *params;
	bool gradient;
};

static void run(void *arg)
{
	const struct operands *o = arg;
	device_write(o->logits, o->host, bytes_of(&o->p));
	assert_int_equal(cuda_cross_entropy(o->losses, o->logits, o->targets, o->params, o->p.M, o->p.V,
						 o->p.pitch, o->gradient, o->p.type, NULL),
		0);
}

/* Every third row does not count; the others' targets are spread from the first column to the last.
 */
static int32_t target_of(size_t m, int V)
{
	return m % 3 == 2 ? -1 : m == 0 ? V - 1 : (int32_t)(m * 7919 % (size_t)V) / 2;
}

/* The loss of a row, and its gradient in `gradient`, of zeros before. */
static double reference_row(double *gradient, const float *logits, int32_t target, int V)
{
	double most = -INFINITY, sum = 0;

	if (target < 0)
		return 0;
	for (int v = 0; v < V; v++)
		most = fmax(most, (double)logits[v]);
	for (int v = 0; v < V; v++)
		sum += exp((double)logits[v] - most);
	for (int v = 0; v < V; v++)
		gradient[v] = (exp((double)logits[v] - most) / sum - (v == target)) * (double)LOSS_SCALE;
	return most + log(sum) - (double)logits[target];
}

/* Logits with NaN in the padding, which must not be read. */
static float *make_logits(const struct problem *p)
{
	float *logits = cuda_floats(p->M * (size_t)p->pitch, p->size, 1 + (uint32_t)p->V, p->type);
	for (size_t i = 0; i < p->M * (size_t)p->pitch; i++)
		if ((int)(i % (size_t)p->pitch) >= p->V)
			logits[i] = NAN;
	return logits;
}

static void make(struct operands *o, struct problem p, const float *logits)
{
	const struct step_params params = { .loss_scale = LOSS_SCALE };
	int32_t *targets = malloc(p.M * sizeof *targets);
	void *host = malloc(bytes_of(&p));

	for (size_t m = 0; m < p.M; m++)
		targets[m] = target_of(m, p.V);
	*o = (struct operands) { .p = p,
		.host = host,
		.logits = cuda_floats_to_device(logits, p.M * (size_t)p.pitch, p.type),
		.losses = device_make(p.M * sizeof(float)),
		.targets = device_copy(targets, p.M * sizeof *targets),
		.params = device_copy(&params, sizeof params) };
	device_read(host, o->logits, bytes_of(&p));
	free(targets);
}

static void done(struct operands *o)
{
	device_free(o->logits), device_free(o->losses), device_free(o->targets), device_free(o->params);
	free((void *)o->host);
}

static void check_losses(struct operands *o, const double *expected, bool gradient)
{
	float *losses = malloc(o->p.M * sizeof *losses);

	o->gradient = gradient;
	device_same_in_each_order("losses", run, o, losses, o->losses, o->p.M * sizeof *losses);
	device_near_double("losses", losses, expected, o->p.M, 1e-5);
	for (size_t m = 0; m < o->p.M; m++)
		if (target_of(m, o->p.V) < 0)
			assert_true(losses[m] == 0);
	free(losses);
}

static void check_gradient(struct operands *o, const double *expected)
{
	const size_t count = o->p.M * (size_t)o->p.pitch;
	void *bits = malloc(bytes_of(&o->p));

	o->gradient = true;
	device_same_in_each_order("the gradient", run, o, bits, o->logits, bytes_of(&o->p));
	float *values = cuda_floats_of(bits, count, o->p.type);
	device_near_double("the gradient", values, expected, count,
		o->p.type == CUDA_BF16 ? 1e-2 : 1e-5);
	for (size_t i = 0; i < count; i++)
		if ((int)(i % (size_t)o->p.pitch) >= o->p.V
			|| target_of(i / (size_t)o->p.pitch, o->p.V) < 0)
			assert_true(values[i] == 0);
	free(values), free(bits);
}

static void check(struct problem p)
{
	float *logits = make_logits(&p);
	double *losses = calloc(p.M, sizeof *losses),
		   *gradient = calloc(p.M * (size_t)p.pitch, sizeof *gradient);
	struct operands o;

	make(&o, p, logits);
	for (size_t m = 0; m < p.M; m++)
		losses[m] = reference_row(gradient + m * (size_t)p.pitch, logits + m * (size_t)p.pitch,
			target_of(m, p.V), p.V);
	check_losses(&o, losses, false);
	check_losses(&o, losses, true);
	check_gradient(&o, gradient);
	done(&o);
	free(logits), free(losses), free(gradient);
}

static void check_each_size(enum cuda_type type)
{
	/* Rows of whole 16 bytes and others; 4099 columns are more than a block reads at once. */
	static const int sizes[][2] = { { 1, 1 }, { 3, 3 }, { 31, 32 }, { 33, 33 }, { 255, 256 },
		{ 257, 320 }, { 4099, 4104 } };
	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
		check((struct problem) { i == 0 ? 1 : 5, sizes[i][0], sizes[i][1], 10, type });
	check((struct problem) { 3, 600, 640, 300, type }); /* whose exponentials overflow */
}

static void fp32_of_each_size(void **state)
{
	check_each_size(CUDA_FP32);
}
static void bf16_of_each_size(void **state)
{
	check_each_size(CUDA_BF16);
}

/* Without a gradient the logits stay. */
static void the_loss_alone_leaves_the_logits(void **state)
{
	const struct problem p = { 2, 30, 32, 3, CUDA_BF16 };
	float *logits = make_logits(&p);
	void *bits = malloc(bytes_of(&p));
	struct operands o;

	make(&o, p, logits);
	run(&o);
	device_read(bits, o.logits, bytes_of(&p));
	assert_memory_equal(bits, o.host, bytes_of(&p));
	done(&o);
	free(logits), free(bits);
}

/* So that the step is seen to be bad. */
static void a_bad_logit_shows_in_the_loss(void **state)
{
	static const float bad[] = { NAN, INFINITY };
	for (int i = 0; i < 4; i++) {
		const struct problem p = { 2, 70, 72, 3, i % 2 ? CUDA_BF16 : CUDA_FP32 };
		float *logits = make_logits(&p), losses[2];
		struct operands o;

		logits[p.pitch + 40] = bad[i / 2];
		make(&o, p, logits);
		run(&o);
		device_read(losses, o.losses, sizeof losses);
		assert_true(isfinite(losses[0]) && !isfinite(losses[1]));
		done(&o);
		free(logits);
	}
}

/* The last row of more than 2^31 logits. */
static void last_row_of_many(void **state)
{
	const size_t pitch = 1000, M = ((size_t)1 << 31) / pitch + 2,
				 last = (M - 1) * pitch * sizeof(float);
	const struct step_params params = { .loss_scale = 1 };
	char *logits = device_make_sparse(M * pitch * sizeof(float));
	int32_t *targets = device_make_sparse(M * sizeof *targets);
	float *losses = device_make_sparse(M * sizeof *losses),
		  *row = cuda_floats(pitch, 5, 1, CUDA_FP32), loss;
	double *expected = calloc(pitch, sizeof *expected),
		   expected_loss = reference_row(expected, row, 0, (int)pitch);
	struct step_params *device_params = device_copy(&params, sizeof params);

	if (!logits || !targets || !losses)
		skip();
	device_write(logits + last, row, pitch * sizeof *row);
	device_only_blocks(M - 1, 1);
	assert_int_equal(cuda_cross_entropy(losses, logits, targets, device_params, M, (int)pitch,
						 (int)pitch, true, CUDA_FP32, NULL),
		0);
	device_only_blocks(0, 0);
	device_read(row, logits + last, pitch * sizeof *row);
	device_read(&loss, losses + M - 1, sizeof loss);
	device_near_double("the last loss", &loss, &expected_loss, 1, 1e-5);
	for (size_t v = 0; v < pitch; v++)
		expected[v] /= (double)LOSS_SCALE;
	device_near_double("the last row's gradient", row, expected, pitch, 1e-5);
	device_free_sparse(logits, M * pitch * sizeof(float)),
		device_free_sparse(targets, M * sizeof *targets);
	device_free_sparse(losses, M * sizeof *losses), device_free(device_params);
	free(row), free(expected);
}

static void chunks_cover_the_rows_within_their_bound(void **state)
{
	static const size_t widths[] = { 64, 50304, 151936 },
						rows[] = { 0, 1, 127, 128, 129, 5000, 8192, 32768, 100003, 524288 };
	for (size_t w = 0; w < 3; w++)
		for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
			for (size_t bytes = 2; bytes <= 4; bytes += 2) {
				size_t M = rows[i], P = widths[w], chunk = head_chunk_rows(M, P, bytes),
					   most = HEAD_CHUNK_MOST / (P * bytes);
				size_t chunks = chunk ? (M + chunk - 1) / chunk : 0;
				assert_true(chunk <= M && (chunk > 0) == (M > 0));
				assert_true(chunk <= most);
				assert_true(chunks <= 1 || chunk % HEAD_ROW_MULTIPLE == 0);
				/* none too many */
				assert_true(chunks <= 1
					|| (chunks - 1) * (most / HEAD_ROW_MULTIPLE * HEAD_ROW_MULTIPLE) < M);
			}
	assert_int_equal(head_chunk_rows(32768, 50304, 2),
		8192); /* GPT-2 with 32 × 1024 tokens: four chunks */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fp32_of_each_size),
		cmocka_unit_test(bf16_of_each_size),
		cmocka_unit_test(the_loss_alone_leaves_the_logits),
		cmocka_unit_test(a_bad_logit_shows_in_the_loss),
		cmocka_unit_test(last_row_of_many),
		cmocka_unit_test(chunks_cover_the_rows_within_their_bound),
	};
	return DEVICE_RUN_TESTS(tests, NULL, NULL);
}
