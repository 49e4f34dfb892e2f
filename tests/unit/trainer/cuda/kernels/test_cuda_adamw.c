/* SPDX-License-Identifier: Apache-2.0 */
/* AdamW on the GPU: the bits of the CPU's plain one, on all chunks of one tensor, of a run of the
 * arenas and of shards. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "tests/unit/trainer/cuda/kernels/cuda_floats.h"
#include "tests/unit/trainer/cuda/kernels/kernel_fixture.h"
#include "tests/unit/trainer/ops/ops_fixture.h"
#include "trainer/cuda/kernels/adamw.h"
#include "trainer/state/optimizer.h"

static const size_t counts[] = { 1, 3, 31, 33, 255, 257, 1023, 2047, 2048, 2049, 6151 };

static const struct step_params usual = { .step = 7,
	.learning_rate = 3e-3f,
	.beta1 = 0.9f,
	.beta2 = 0.95f,
	.epsilon = 1e-8f,
	.weight_decay = 0.1f,
	.bias1 = 1.9f,
	.bias2 = 3.3f,
	.clip = 0.37f };

/* What a step begins with: with zeros, so that something is divided by epsilon, and with values far
 * apart. */
struct arenas {
	size_t count;
	float *grad, *weights, *m, *v;
};

static struct arenas make_arenas(size_t count)
{
	struct arenas a = { count, kernel_floats(count, 1e-2f, 1, CUDA_FP32),
		kernel_floats(count, 1, 2, CUDA_FP32), kernel_floats(count, 1e-2f, 3, CUDA_FP32),
		kernel_floats(count, 1e-4f, 4, CUDA_FP32) };
	for (size_t i = 0; i < count; i++) {
		a.v[i] = i % 7 ? a.v[i] * a.v[i] : 0;
		a.grad[i] *= i % 11 ? 1 : i % 2 ? 1e-38f : 1e15f;
		if (i % 77 == 0)
			a.grad[i] = a.m[i] = 0;
	}
	return a;
}

struct update {
	struct cuda_adamw adamw;
	const struct adamw_chunk *chunks;
	size_t count;
	const struct step_params *params;
};

static void run(void *arg)
{
	struct update *u = arg;
	assert_int_equal(cuda_adamw_chunks(&u->adamw, u->chunks, u->count, u->params, NULL), 0);
}

/* An update of one tensor that is the whole arena. */
static struct update whole(struct cuda_adamw adamw, size_t count, int decay,
	const struct step_params *params)
{
	struct adamw_chunk chunks[4];
	size_t n = 0;
	assert_in_range(count, 1, sizeof chunks / sizeof chunks[0] * ADAMW_CHUNK);
	for (size_t at = 0; at < count; at += ADAMW_CHUNK)
		chunks[n++] = (struct adamw_chunk) { .first = at,
			.moments = at,
			.count = (uint32_t)(count - at < ADAMW_CHUNK ? count - at : ADAMW_CHUNK),
			.decay = (uint32_t)decay };
	return (struct update) { adamw, kernel_operand(chunks, n * sizeof *chunks, 0), n,
		kernel_operand(params, sizeof *params, 0) };
}

/* In place, or from operands to outputs that begin as `stale`. */
static struct cuda_adamw on_device(const struct arenas *a, const float *stale, bool in_place,
	enum cuda_type type, int shift)
{
	struct cuda_adamw d = { .type = type };
	d.to.weights =
		kernel_output_tensor("weights", in_place ? a->weights : stale, a->count, CUDA_FP32, shift);
	d.to.m = kernel_output_tensor("m", in_place ? a->m : stale, a->count, CUDA_FP32, shift);
	d.to.v = kernel_output_tensor("v", in_place ? a->v : stale, a->count, CUDA_FP32, shift);
	d.from = d.to;
	if (!in_place) {
		d.from.weights = kernel_tensor(a->weights, a->count, CUDA_FP32, shift);
		d.from.m = kernel_tensor(a->m, a->count, CUDA_FP32, shift);
		d.from.v = kernel_tensor(a->v, a->count, CUDA_FP32, shift);
	}
	d.grad = kernel_tensor(a->grad, a->count, CUDA_FP32, shift);
	d.compute = type == CUDA_FP32 && in_place
		? d.to.weights
		: kernel_output_tensor("compute", stale, a->count, type, shift);
	return d;
}

static struct arenas filled(size_t count, const float *with)
{
	struct arenas a = { count, NULL, kernel_host(count * 4), kernel_host(count * 4),
		kernel_host(count * 4) };
	for (int i = 0; i < 3; i++)
		memcpy((float *const[]) { a.weights, a.m, a.v }[i], with, count * 4);
	return a;
}

/* The bits of what the CPU left in `to`, and the compute copy of its weights. */
static void check_bits(const struct cuda_adamw *d, const struct arenas *to, const float *compute)
{
	const size_t bytes = to->count * 4;
	float *copy = kernel_host(bytes);
	memcpy(copy, compute, bytes);
	cuda_floats_round(copy, to->count, d->type);
	fixture_same_bits("weights", kernel_result(d->to.weights), to->weights, bytes);
	fixture_same_bits("m", kernel_result(d->to.m), to->m, bytes);
	fixture_same_bits("v", kernel_result(d->to.v), to->v, bytes);
	fixture_same_bits("compute", kernel_values(d->compute, to->count, d->type), copy, bytes);
}

static void check_tensor(size_t count, int decay, bool in_place, enum cuda_type type, int shift)
{
	const struct arenas from = make_arenas(count);
	const float *stale = kernel_floats(count, 0, 0, CUDA_FP32);
	const struct arenas to = filled(count, stale);
	struct update u = whole(on_device(&from, stale, in_place, type, shift), count, decay, &usual);
	struct ops *plain = kernel_reference();
	float *compute = kernel_host(count * 4);
	kernel_run(run, &u);
	*plain->params = usual;
	plain->adamw(plain, &(struct adamw_state) { to.weights, to.m, to.v },
		&(struct adamw_state) { from.weights, from.m, from.v }, compute, from.grad, count, decay);
	check_bits(&u.adamw, &to, compute);
	kernel_done();
}

static void tensor_has_the_bits_of_the_cpu(void **state)
{
	for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
		for (int k = 0; k < 8; k++)
			check_tensor(counts[i], k % 2, k / 2 % 2, k / 4 ? CUDA_BF16 : CUDA_FP32,
				counts[i] == 1023);
}

static void masked_step_changes_nothing(void **state)
{
	struct step_params params = usual;
	const struct arenas from = make_arenas(257);
	const float *stale = kernel_floats(257, 0.5f, 0, CUDA_FP32);
	const struct arenas to = filled(257, stale);
	params.masked = 1;
	struct update u = whole(on_device(&from, stale, false, CUDA_BF16, 0), 257, 1, &params);
	kernel_run(run, &u);
	check_bits(&u.adamw, &to, stale);
	kernel_done();
}

static void add_row(struct tensor_table *table, const char *name, int64_t rows, int64_t columns,
	bool decay, enum tensor_role role)
{
	struct tensor row = { .dims = 2,
		.shape = { rows, columns },
		.padded = { rows + 3, columns },
		.decay = decay,
		.role = role };
	struct err err;
	strcpy(row.name, name);
	if (tensor_table_add(table, &row, &err))
		fail_msg("%s", err.text);
}

/* Tensors with padded rows and gaps between them, one of them no parameter. */
static struct tensor_table make_table(void)
{
	struct tensor_table table = { 0 };
	add_row(&table, "matrix", 50, 83, true, TENSOR_PARAMETER);
	add_row(&table, "bias", 1, 5, false, TENSOR_PARAMETER);
	add_row(&table, "mean", 1, 300, false, TENSOR_STATISTIC);
	add_row(&table, "even", 16, 128, true, TENSOR_PARAMETER);
	add_row(&table, "last", 1, 1, false, TENSOR_PARAMETER);
	return table;
}

static void check_run(const struct tensor_table *table, size_t first, size_t end,
	enum cuda_type type, int shift)
{
	struct adamw_chunk chunks[64];
	const struct zero_shard run_of = { 0, first, end };
	const size_t count = optimizer_chunks(table, &run_of, 1, chunks, 64),
				 elements = table->elements;
	const struct arenas from = make_arenas(elements);
	const float *stale = kernel_floats(elements, 0.5f, 0, CUDA_FP32);
	const struct arenas to = filled(elements, stale);
	struct ops *plain = kernel_reference();
	assert_in_range(count, 0, 64);
	for (size_t i = 0; i < count; i++)
		chunks[i].moments += first; /* these arenas hold the moments of all elements */
	struct update u = { on_device(&from, stale, false, type, shift),
		kernel_operand(chunks, count * sizeof *chunks, 0), count,
		kernel_operand(&usual, sizeof usual, 0) };
	kernel_run(run, &u);
	*plain->params = usual;
	optimizer_update(plain, table, &run_of, 1, &(struct adamw_state) { to.weights, to.m, to.v },
		&(struct adamw_state) { from.weights, from.m, from.v }, from.grad);
	check_bits(&u.adamw, &to, to.weights);
	kernel_done();
}

static void run_has_the_bits_of_the_cpu(void **state)
{
	struct tensor_table table = make_table();
	for (int k = 0; k < 2; k++) {
		const enum cuda_type type = k ? CUDA_BF16 : CUDA_FP32;
		check_run(&table, 0, table.elements, type, 0);
		check_run(&table, 0, table.elements, type, 1);
		check_run(&table, 1001, table.rows[3].offset + 130, type, 0); /* no multiple of four */
		check_run(&table, 0, table.rows[1].offset + table.rows[1].count + 1, type,
			0); /* ends between two tensors */
		check_run(&table, table.rows[1].offset + 5, table.rows[3].offset, type,
			0); /* nothing to update */
	}
	tensor_table_clear(&table);
}

/* Two shards, whose moments lie one after the other as with --zero 1. */
static void shards_have_the_bits_of_the_cpu(void **state)
{
	struct tensor_table table = make_table();
	const struct zero_shard own[] = { { 0, 0, 1001 },
		{ 0, table.rows[3].offset + 7, table.elements } };
	const struct arenas from = make_arenas(table.elements), to = make_arenas(table.elements);
	struct arenas packed = make_arenas(table.elements), expected = make_arenas(table.elements);
	struct adamw_chunk chunks[64];
	const size_t count = optimizer_chunks(&table, own, 2, chunks, 64);
	size_t at = 0;
	float *compute = kernel_host(table.elements * 4);
	struct ops *plain = kernel_reference();
	*plain->params = usual;
	for (int i = 0; i < 2; i++) {
		size_t elements = own[i].end - own[i].first;
		memcpy(packed.m + at, from.m + own[i].first, elements * 4);
		memcpy(packed.v + at, from.v + own[i].first, elements * 4);
		at += elements;
	}
	optimizer_update(plain, &table, own, 2, &(struct adamw_state) { to.weights, to.m, to.v },
		&(struct adamw_state) { to.weights, to.m, to.v }, from.grad);
	memcpy(expected.m, packed.m, table.elements * 4);
	memcpy(expected.v, packed.v, table.elements * 4);
	at = 0;
	for (int i = 0; i < 2; i++) {
		size_t elements = own[i].end - own[i].first;
		memcpy(expected.m + at, to.m + own[i].first, elements * 4);
		memcpy(expected.v + at, to.v + own[i].first, elements * 4);
		at += elements;
	}
	expected.weights = to.weights;
	memcpy(compute, to.weights, table.elements * 4);
	struct update u = { on_device(&packed, NULL, true, CUDA_FP32, 0),
		kernel_operand(chunks, count * sizeof *chunks, 0), count,
		kernel_operand(&usual, sizeof usual, 0) };
	kernel_run(run, &u);
	check_bits(&u.adamw, &expected, compute);
	kernel_done();
	tensor_table_clear(&table);
}

static void chunks_cover_what_they_must(void **state)
{
	struct tensor_table table = make_table();
	struct adamw_chunk chunks[64];
	const struct zero_shard all = { 0, 0, table.elements }, none = { 0, 10, 10 };
	const size_t count = optimizer_chunks(&table, &all, 1, chunks, 64);
	assert_int_equal(count, 3 + 1 + 1 + 1);
	assert_int_equal(optimizer_chunks(&table, &all, 1, NULL, 0), count);
	assert_int_equal(chunks[2].count, 50 * 83 - 2 * ADAMW_CHUNK);
	assert_true(chunks[2].decay && !chunks[3].decay && chunks[4].decay);
	assert_true(chunks[4].first == table.rows[3].offset && chunks[4].count == ADAMW_CHUNK);
	assert_int_equal(optimizer_chunks(&table, &none, 1, chunks, 64), 0);
	tensor_table_clear(&table);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tensor_has_the_bits_of_the_cpu),
		cmocka_unit_test(masked_step_changes_nothing),
		cmocka_unit_test(run_has_the_bits_of_the_cpu),
		cmocka_unit_test(shards_have_the_bits_of_the_cpu),
		cmocka_unit_test(chunks_cover_what_they_must),
	};
	return DEVICE_RUN_TESTS(tests, NULL, NULL);
}
