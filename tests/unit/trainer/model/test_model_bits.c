/* SPDX-License-Identifier: Apache-2.0 */
/* model: the bits of a slot's gradients and loss depend on its weights and samples only: not on the
 * number of threads, nor on which slots this process did before, nor on what the buffer held. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#include "tests/unit/trainer/cpu/threads_sample.h"
#include "tests/unit/trainer/model/model_fixture.h"

#define SLOTS 4
#define MICROBATCHES 2 /* of a slot */

/* Large enough for products, attention and the head to be cut into blocks, and for the blocks to
 * end in remainders. */
static const struct model_config wide_gpt2 = { .kind = MODEL_GPT2,
	.layers = 2,
	.width = 72,
	.heads = 3,
	.context = 133,
	.vocabulary = 301 };
static const struct model_config wide_mlp = { .kind = MODEL_MLP,
	.inputs = 131,
	.hidden = 259,
	.classes = 17 };

static void set_threads(int threads)
{
#ifdef _OPENMP
	omp_set_num_threads(threads);
#else
	(void)threads;
#endif
}

static int get_threads(void)
{
#ifdef _OPENMP
	return omp_get_max_threads();
#else
	return 1;
#endif
}

struct slot {
	float *grads;
	double losses[MICROBATCHES];
};

static void run_slot(struct fixture *f, int index, struct slot *slot)
{
	for (int i = 0; i < MICROBATCHES; i++) {
		int64_t valid;
		slot->losses[i] = 0;
		struct batch batch = fixture_batch(f, f->batch, (uint64_t)(100 + index * MICROBATCHES + i));
		model_train(f->model, &batch, slot->grads, i > 0, &slot->losses[i], &valid, NULL, NULL);
		fixture_free_batch(&batch);
	}
}

static bool equal(const struct fixture *f, const struct slot *a, const struct slot *b)
{
	return memcmp(a->grads, b->grads, f->table->elements * sizeof(float)) == 0
		&& memcmp(a->losses, b->losses, sizeof a->losses) == 0;
}

/* Another order of the slots for each number of threads, one buffer for all of them. */
static void check_any_order(struct fixture *f, const struct slot reference[SLOTS])
{
	static const int orders[][SLOTS] = { { 0, 1, 2, 3 }, { 3, 2, 1, 0 }, { 2, 0, 3, 1 },
		{ 1, 3, 0, 2 } };
	struct slot slot = { .grads = fixture_arena(f) };
	for (int threads = 1; threads <= 8; threads = threads_sample_next(threads)) {
		const int *order = orders[threads % 4];
		set_threads(threads);
		for (int i = 0; i < SLOTS; i++) {
			run_slot(f, order[i], &slot);
			if (!equal(f, &slot, &reference[order[i]]))
				fail_msg("%s: slot %d differs with %d threads", f->ops->name, order[i], threads);
		}
	}
	f->ops->device->release(f->ops->device, slot.grads);
}

static void check(const struct model_config *config, bool plain)
{
	const int threads = get_threads();
	struct fixture f = fixture_open(config, plain, 3);
	struct slot reference[SLOTS];
	set_threads(1);
	for (int i = 0; i < SLOTS; i++) {
		reference[i].grads = fixture_arena(&f);
		run_slot(&f, i, &reference[i]);
	}
	check_any_order(&f, reference);
	set_threads(threads);
	for (int i = 0; i < SLOTS; i++)
		f.ops->device->release(f.ops->device, reference[i].grads);
	fixture_close(&f);
}

static void gpt2_bits(void **state)
{
	check(&wide_gpt2, true);
	check(&wide_gpt2, false);
}

static void mlp_bits(void **state)
{
	check(&wide_mlp, true);
	check(&wide_mlp, false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gpt2_bits),
		cmocka_unit_test(mlp_bits),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
