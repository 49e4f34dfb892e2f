/* SPDX-License-Identifier: Apache-2.0 */
/* batchnorm: both tables of operations against the formulas in fp64 and their derivatives, several
 * ranks against one that has the whole batch, running statistics as PyTorch keeps them, and a rank
 * that has nothing to give. */
#include "config.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#ifdef _OPENMP
#include <omp.h>
#endif
#include <cmocka.h>

#include "tests/unit/trainer/comm/world_fixture.h"
#include "tests/unit/trainer/model/model_fixture.h"
#include "tests/unit/trainer/ops/ops_fixture.h"
#include "trainer/cpu/isa.h"
#include "trainer/model/batchnorm.h"

#define TOLERANCE 1e-6
#define ROWS 53
#define WIDTH 139 /* three blocks of columns, the last one odd */
#define ELEMENTS (ROWS * WIDTH)

/* Gamma, beta, running mean, running variance and the number of batches in one arena. */
static const struct batchnorm_tensors places = { 0, WIDTH, 2 * WIDTH, 3 * WIDTH, 4 * WIDTH };
#define ARENA (4 * WIDTH + 2)

struct layer {
	float arena[ARENA], grads[ARENA], x[ELEMENTS], y[ELEMENTS], dy[ELEMENTS], dx[ELEMENTS];
	int32_t targets[ROWS];
};

/* A column far from zero needs its moments computed in two passes. Some rows do not count. */
static struct layer *make_layer(void)
{
	struct layer *layer = calloc(1, sizeof *layer);
	for (int i = 0; i < ELEMENTS; i++) {
		layer->x[i] =
			(float)(4 * fixture_unit(1, 0, (uint32_t)i) + (i % WIDTH == 7 ? 1000 : i % WIDTH % 3));
		layer->dy[i] = (float)(2 * fixture_unit(1, 1, (uint32_t)i) - 1);
	}
	for (int c = 0; c < WIDTH; c++) {
		layer->arena[places.gamma + (size_t)c] = (float)(0.5 + fixture_unit(1, 2, (uint32_t)c));
		layer->arena[places.beta + (size_t)c] = (float)(fixture_unit(1, 3, (uint32_t)c) - 0.5);
		layer->arena[places.running_var + (size_t)c] = 1;
	}
	for (int m = 0; m < ROWS; m++)
		layer->targets[m] = m % 9 == 4 ? -1 : 1;
	return layer;
}

/* As below the head: no gradient in rows that do not count. */
static void mask_gradient(struct layer *layer)
{
	for (int i = 0; i < ELEMENTS; i++)
		if (layer->targets[i / WIDTH] < 0 || layer->y[i] <= 0)
			layer->dy[i] = 0;
}

/* Of the rows from `first` on. */
static int counted(const struct layer *layer, int first, int rows)
{
	int count = 0;
	for (int m = first; m < first + rows; m++)
		count += layer->targets[m] >= 0;
	return count;
}

static void run_layer(struct layer *layer, struct ops *ops, struct batchnorm *norm, int first,
	int rows)
{
	size_t at = (size_t)first * WIDTH;
	batchnorm_bind(norm, ops, layer->arena, layer->arena);
	batchnorm_forward(norm, ops, layer->y + at, layer->x + at, layer->targets + first,
		counted(layer, first, rows), rows);
	mask_gradient(layer);
	batchnorm_backward_begin(norm, ops, layer->grads, layer->dy + at, layer->x + at,
		layer->targets + first, rows, 0);
	batchnorm_backward_end(norm, ops, layer->dx + at, layer->dy + at, layer->x + at,
		layer->targets + first, rows);
	batchnorm_settle(norm, ops, layer->arena);
}

static void train_alone(struct layer *layer, bool plain)
{
	struct ops *ops = fixture_ops(plain, ROWS, 1, WIDTH, 0, 2);
	struct batchnorm *norm = batchnorm_create(&places, WIDTH, NULL);
	run_layer(layer, ops, norm, 0, ROWS);
	batchnorm_destroy(norm);
	ops->destroy(ops);
}

/* ---- the formulas ---- */

/* One column in fp64. */
struct column {
	double x[ROWS], dy[ROWS], y[ROWS], gamma, beta, mean, variance;
	const int32_t *targets;
	int rows;
};

/* The sum of y·dy over the rows that count. dy is zero where y is cut off, so the ReLU is not
 * needed for the derivative. */
static double exact(struct column *column)
{
	double total = 0, mean = 0, variance = 0;
	column->rows = 0;
	for (int m = 0; m < ROWS; m++)
		column->rows += column->targets[m] >= 0;
	for (int m = 0; m < ROWS; m++)
		mean += column->targets[m] < 0 ? 0 : column->x[m] / column->rows;
	for (int m = 0; m < ROWS; m++)
		variance += column->targets[m] < 0
			? 0
			: (column->x[m] - mean) * (column->x[m] - mean) / column->rows;
	for (int m = 0; m < ROWS; m++) {
		column->y[m] = (column->x[m] - mean) / sqrt(variance + BATCHNORM_EPSILON) * column->gamma
			+ column->beta;
		total += column->targets[m] < 0 ? 0 : column->y[m] * column->dy[m];
	}
	column->mean = mean;
	column->variance = variance;
	return total;
}

static double slope(struct column *column, double *by)
{
	const double step = 1e-4, saved = *by;
	*by = saved + step;
	double up = exact(column);
	*by = saved - step;
	double down = exact(column);
	*by = saved;
	return (up - down) / (2 * step);
}

static void near(const char *what, int c, double is, double should, double scale)
{
	if (!(fabs(is - should) <= 2e-5 * scale))
		fail_msg("%s of column %d is %.9g, not %.9g", what, c, is, should);
}

static void check_column(const struct layer *layer, int c)
{
	struct column column = { .targets = layer->targets,
		.gamma = (double)layer->arena[places.gamma + (size_t)c],
		.beta = (double)layer->arena[places.beta + (size_t)c] };
	for (int m = 0; m < ROWS; m++) {
		column.x[m] = (double)layer->x[m * WIDTH + c];
		column.dy[m] = (double)layer->dy[m * WIDTH + c];
	}
	exact(&column);
	for (int m = 0; m < ROWS; m++)
		near("y", c, (double)layer->y[m * WIDTH + c], fmax(0, column.y[m]), fabs(column.mean) + 1);
	near("running mean", c, (double)layer->arena[places.running_mean + (size_t)c],
		0.1 * column.mean, fabs(column.mean) + 1);
	near("running variance", c, (double)layer->arena[places.running_var + (size_t)c],
		0.9 + 0.1 * column.variance * column.rows / (column.rows - 1), 1);
	for (int m = 0; m < ROWS; m++)
		near("dx", c, (double)layer->dx[m * WIDTH + c], slope(&column, &column.x[m]),
			fabs(column.mean) + 1);
	near("dgamma", c, (double)layer->grads[places.gamma + (size_t)c], slope(&column, &column.gamma),
		fabs(column.mean) + 4);
	near("dbeta", c, (double)layer->grads[places.beta + (size_t)c], slope(&column, &column.beta),
		4);
}

static int64_t batches_of(const struct layer *layer)
{
	int64_t batches;
	memcpy(&batches, layer->arena + places.batches, sizeof batches);
	return batches;
}

static void both_tables_follow_the_formulas(void **state)
{
	for (int plain = 1; plain >= 0; plain--) {
		struct layer *layer = make_layer();
		train_alone(layer, plain);
		for (int c = 0; c < WIDTH; c++)
			check_column(layer, c);
		assert_int_equal(batches_of(layer), 1);
		free(layer);
	}
}

/* Whatever the table and the number of threads. */
static void bits_are_those_of_plain_c(void **state)
{
	struct layer *plain = make_layer();
	train_alone(plain, true);
	for (int threads = 1; threads <= 5; threads += 2) {
		struct layer *fast = make_layer();
#ifdef _OPENMP
		omp_set_num_threads(threads);
#endif
		train_alone(fast, false);
		assert_memory_equal(fast, plain, sizeof *fast);
		free(fast);
	}
	free(plain);
}

static void gradients_of_parameters_are_added_to(void **state)
{
	struct ops *ops = fixture_ops(false, ROWS, 1, WIDTH, 0, 2);
	struct batchnorm *norm = batchnorm_create(&places, WIDTH, NULL);
	struct layer *layer = make_layer();
	float once[2 * WIDTH];
	run_layer(layer, ops, norm, 0, ROWS);
	memcpy(once, layer->grads, sizeof once);
	batchnorm_backward_begin(norm, ops, layer->grads, layer->dy, layer->x, layer->targets, ROWS, 1);
	for (int i = 0; i < 2 * WIDTH; i++)
		assert_true(layer->grads[i] == 2 * once[i]);
	batchnorm_destroy(norm);
	ops->destroy(ops);
	free(layer);
}

/* ---- running statistics ---- */

static void forgotten_until_settled(void **state)
{
	struct ops *ops = fixture_ops(false, ROWS, 1, WIDTH, 0, 2);
	struct batchnorm *norm = batchnorm_create(&places, WIDTH, NULL);
	struct layer *layer = make_layer(), *before = make_layer();
	batchnorm_bind(norm, ops, layer->arena, layer->arena);
	batchnorm_forward(norm, ops, layer->y, layer->x, layer->targets, counted(layer, 0, ROWS), ROWS);
	assert_memory_equal(layer->arena, before->arena, sizeof layer->arena);
	batchnorm_bind(norm, ops, layer->arena, layer->arena); /* the step was masked */
	batchnorm_settle(norm, ops, layer->arena);
	assert_memory_equal(layer->arena, before->arena, sizeof layer->arena);
	for (int i = 0; i < 3; i++)
		batchnorm_forward(norm, ops, layer->y, layer->x, layer->targets, counted(layer, 0, ROWS),
			ROWS);
	batchnorm_settle(norm, ops, layer->arena);
	assert_int_equal(batches_of(layer), 3);
	batchnorm_destroy(norm);
	ops->destroy(ops);
	free(layer);
	free(before);
}

/* One row has no variance, and none has no mean either: what comes out is finite, and nothing is
 * counted. */
static void batches_without_a_variance_are_not_counted(void **state)
{
	struct ops *ops = fixture_ops(false, ROWS, 1, WIDTH, 0, 2);
	struct batchnorm *norm = batchnorm_create(&places, WIDTH, NULL);
	struct layer *layer = make_layer(), *before = make_layer();
	for (int rows = 0; rows < 2; rows++) {
		for (int m = 0; m < ROWS; m++)
			layer->targets[m] = m < rows ? 1 : -1;
		run_layer(layer, ops, norm, 0, ROWS);
		assert_memory_equal(layer->arena, before->arena, sizeof layer->arena);
		for (int i = 0; i < ELEMENTS; i++)
			assert_true(isfinite(layer->y[i]) && isfinite(layer->dx[i]));
	}
	batchnorm_destroy(norm);
	ops->destroy(ops);
	free(layer);
	free(before);
}

static void evaluation_is_by_the_running_statistics(void **state)
{
	struct ops *ops = fixture_ops(false, ROWS, 1, WIDTH, 0, 2);
	struct batchnorm *norm = batchnorm_create(&places, WIDTH, NULL);
	struct layer *layer = make_layer();
	for (int c = 0; c < WIDTH; c++) {
		layer->arena[places.running_mean + (size_t)c] = (float)c;
		layer->arena[places.running_var + (size_t)c] = (float)(c + 1);
	}
	batchnorm_bind(norm, ops, layer->arena, layer->arena);
	batchnorm_evaluate(norm, ops, layer->y, layer->x, ROWS);
	for (int i = 0; i < ELEMENTS; i++) {
		size_t c = (size_t)i % WIDTH;
		double n = ((double)layer->x[i] - (double)c) / sqrt((double)(c + 1) + 1e-5);
		double y = fmax(0,
			n * (double)layer->arena[places.gamma + c] + (double)layer->arena[places.beta + c]);
		near("y", (int)c, (double)layer->y[i], y, fabs(n) + 1);
	}
	batchnorm_destroy(norm);
	ops->destroy(ops);
	free(layer);
}

/* ---- several ranks ---- */

/* Where each rank's rows begin; one has none that count, and no two have as many. */
static const int first_row[] = { 0, 5, 26, 27, ROWS };
#define RANKS 4

struct joined {
	struct layer *whole; /* what one rank computes of all rows */
	struct layer *ranks; /* [RANKS] in shared memory */
};

static int train_part(struct comm *comm, void *arg, struct err *err)
{
	const struct joined *joined = arg;
	int rank = comm_rank(comm), first = first_row[rank];
	struct layer *layer = &joined->ranks[rank], *made = make_layer();
	struct ops *ops = fixture_ops(false, ROWS, 1, WIDTH, 0, 2);
	struct batchnorm *norm = batchnorm_create(&places, WIDTH, err);
	*layer = *made;
	for (int m = first_row[2]; m < first_row[3]; m++)
		layer->targets[m] = -1;
	if (batchnorm_join(norm, comm, NULL, err) < 0)
		return -1;
	run_layer(layer, ops, norm, first, first_row[rank + 1] - first);
	batchnorm_destroy(norm);
	ops->destroy(ops);
	free(made);
	return 0;
}

static double distance(const float *a, const float *b, size_t count)
{
	double difference = 0, size = 1e-30;
	for (size_t i = 0; i < count; i++) {
		difference += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
		size += (double)b[i] * (double)b[i];
	}
	return sqrt(difference / size);
}

static void compare_ranks(const struct joined *joined)
{
	const struct layer *whole = joined->whole, *zero = &joined->ranks[0];
	float grads[2 * WIDTH] = { 0 };
	for (int rank = 0; rank < RANKS; rank++) {
		const struct layer *layer = &joined->ranks[rank];
		size_t at = (size_t)first_row[rank] * WIDTH,
			   count = (size_t)(first_row[rank + 1] - first_row[rank]) * WIDTH;
		assert_true(distance(layer->y + at, whole->y + at, count) < TOLERANCE);
		assert_true(distance(layer->dx + at, whole->dx + at, count) < TOLERANCE);
		assert_memory_equal(layer->arena, zero->arena, sizeof zero->arena);
		for (int i = 0; i < 2 * WIDTH; i++)
			grads[i] += layer->grads[i];
	}
	assert_true(distance(grads, whole->grads, 2 * WIDTH) < TOLERANCE);
	assert_true(distance(zero->arena, whole->arena, 4 * WIDTH) < TOLERANCE);
	assert_int_equal(batches_of(zero), 1);
}

static void ranks_are_one_batch(void **state)
{
	struct world_rank ranks[WORLD_MAX];
	size_t bytes = RANKS * sizeof(struct layer);
	struct joined joined = { .whole = make_layer(),
		.ranks = mmap(NULL, 2 * bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0) };
#ifdef _OPENMP
	omp_set_num_threads(1); /* a fork has no other threads */
#endif
	world_run(RANKS, 20, train_part, &joined, ranks);
	world_assert_ok(RANKS, ranks);
	for (int m = first_row[2]; m < first_row[3]; m++)
		joined.whole->targets[m] = -1;
	train_alone(joined.whole, false);
	compare_ranks(&joined);
	struct layer *before = malloc(bytes);
	memcpy(before, joined.ranks, bytes);
	memset(joined.ranks, 0, bytes);
	world_run(RANKS, 20, train_part, &joined, ranks);
	world_assert_ok(RANKS, ranks);
	assert_memory_equal(before, joined.ranks, bytes); /* the same bits in the same world */
	free(before);
	munmap(joined.ranks, 2 * bytes);
	free(joined.whole);
}

/* ---- the model ---- */

static double training_loss(struct fixture *f, const struct batch *batch)
{
	double loss;
	int64_t valid;
	float *grads = fixture_arena(f);
	model_train(f->model, batch, grads, 0, &loss, &valid, NULL, NULL);
	f->ops->device->release(f->ops->device, grads);
	return loss;
}

/* Central differences along random signs of a tensor, as in test_model.c; fp32 losses leave three
 * digits of a slope. */
static void check_slope(struct fixture *f, const struct batch *batch, const struct tensor *row)
{
	const double h = 0.01;
	float *w = f->weights + row->offset, saved[200];
	double losses[2], expected = 0, size = 0;
	for (int side = 0; side < 2; side++) {
		memcpy(saved, w, row->count * sizeof *saved);
		for (size_t k = 0; k < row->count; k++)
			w[k] += (float)((side ? -h : h) * (fixture_unit(5, 1, (uint32_t)k) < 0.5 ? -1 : 1));
		losses[side] = training_loss(f, batch);
		memcpy(w, saved, row->count * sizeof *saved);
	}
	for (size_t k = 0; k < row->count; k++) {
		double g = (double)f->grads[row->offset + k];
		expected += fixture_unit(5, 1, (uint32_t)k) < 0.5 ? -g : g;
		size += g * g;
	}
	if (!(fabs((losses[0] - losses[1]) / (2 * h) - expected) <= 0.02 * sqrt(size) + 1e-3))
		fail_msg("%s: slope %g, not %g", row->name, (losses[0] - losses[1]) / (2 * h), expected);
}

static void the_models_gradients_match_differences(void **state)
{
	for (int plain = 0; plain < 2; plain++) {
		struct fixture f = fixture_open(&fixture_normal_mlp, plain, 16);
		struct batch batch = fixture_batch(&f, 16, 1);
		double loss;
		int64_t valid;
		model_train(f.model, &batch, f.grads, 0, &loss, &valid, NULL, NULL);
		for (int r = 0; r < f.table->count; r++)
			if (f.table->rows[r].role == TENSOR_PARAMETER)
				check_slope(&f, &batch, &f.table->rows[r]);
			else
				for (size_t k = 0; k < f.table->rows[r].count; k++)
					assert_true(f.grads[f.table->rows[r].offset + k] == 0);
		fixture_free_batch(&batch);
		fixture_close(&f);
	}
}

/* Which rank has no batch, and what the others tell of the order of things. */
static void count_ready(void *arg, int layer)
{
	int *layers = arg;
	if (layer != MODEL_FORWARD_DONE)
		*layers = 10 * *layers + layer + 1;
}

static int train_or_not(struct comm *comm, void *arg, struct err *err)
{
	struct fixture f = fixture_open(&fixture_normal_mlp, false, 8);
	struct batch batch = fixture_batch(&f, 8, (uint64_t)comm_rank(comm));
	double loss = 0;
	int64_t valid;
	int ready = 0, *seen = arg;
	if (model_join(f.model, comm, NULL, err) < 0)
		return -1;
	for (int i = 0; i < 3; i++)
		if (comm_rank(comm) == 1 && i > 0)
			model_absent(f.model, count_ready, &ready);
		else
			model_train(f.model, &batch, f.grads, i > 0, &loss, &valid, count_ready, &ready);
	WORLD_CHECK(ready == 121212);
	model_settle(f.model, f.weights);
	const struct tensor *row = tensor_table_find(f.table, "1.num_batches_tracked");
	memcpy(&seen[comm_rank(comm)], f.weights + row->offset, sizeof seen[0]);
	fixture_free_batch(&batch);
	fixture_close(&f);
	return 0;
}

static void nobody_waits_for_a_rank_that_has_nothing(void **state)
{
	struct world_rank ranks[WORLD_MAX];
	int *seen = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	world_run(3, 5, train_or_not, seen, ranks);
	world_assert_ok(3, ranks);
	for (int rank = 0; rank < 3; rank++)
		assert_int_equal(seen[rank], 3);
	munmap(seen, 4096);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ranks_are_one_batch),
		cmocka_unit_test(nobody_waits_for_a_rank_that_has_nothing),
		cmocka_unit_test(both_tables_follow_the_formulas),
		cmocka_unit_test(bits_are_those_of_plain_c),
		cmocka_unit_test(gradients_of_parameters_are_added_to),
		cmocka_unit_test(forgotten_until_settled),
		cmocka_unit_test(batches_without_a_variance_are_not_counted),
		cmocka_unit_test(evaluation_is_by_the_running_statistics),
		cmocka_unit_test(the_models_gradients_match_differences),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
