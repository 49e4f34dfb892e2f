/* SPDX-License-Identifier: Apache-2.0 */
/* device_snapshot: a snapshot that is copied while the device goes on is the state of its step, bit
 * by bit, a hundred times. On the host over the stand-in of the runtime, on a GPU as it is. */
#include "config.h"

#include "tests/shim/device.h"

#ifdef HAVE_CUBLAS
#include "tests/unit/trainer/state/device_training.h"
#include "trainer/state/device_snapshot.h"

#define ROUNDS 100
/* Updates of a round: the first two come after no snapshot that is being copied. */
#define AHEAD 3

/* What the host knows of `plain` is exact: it waits in each round. */
static void snapshots_in_passing(enum gemm_mode mode)
{
	/* The larger one takes the GPU longer to copy than to update. */
	int64_t rows = device_orders() > 1 ? 40 : 100000;
	struct device_training going, plain;
	struct layout layout;
	struct err err = { 0 };
	device_training_begin(&going, rows, mode);
	device_training_begin(&plain, rows, mode);
	assert_int_equal(layout_make(&layout, &going.table, 0, 1, NULL, 0, &err), 0);
	struct device_snapshot *snapshot_copy = device_snapshot_start(&going.state, &layout, 2, &err);
	if (!snapshot_copy)
		fail_msg("%s", err.text);
	assert_true(device_snapshot_is_pinned(snapshot_copy));
	for (int round = 0; round < ROUNDS; round++) {
		int buffer = round % 2;
		device_training_step(&going);
		if (device_snapshot_begin(snapshot_copy, buffer, &err) < 0)
			fail_msg("%s", err.text);
		for (int i = 1; i < AHEAD; i++)
			device_training_step(&going);
		if (device_snapshot_finish(snapshot_copy, 20, &err) < 0)
			fail_msg("%s", err.text);
		device_training_step(&plain);
		float *arenas = device_state_read(&plain.state);
		size_t differs = device_training_differs(&layout,
			device_snapshot_memory(snapshot_copy)->base[buffer], arenas);
		if (differs > 0)
			fail_msg("round %d: %zu elements are not those of the step", round, differs);
		free(arenas);
		for (int i = 1; i < AHEAD; i++)
			device_training_step(&plain);
	}
	assert_int_equal(state_weights_hash(&going.state), state_weights_hash(&plain.state));
	device_snapshot_stop(snapshot_copy);
	layout_clear(&layout);
	device_training_end(&going);
	device_training_end(&plain);
}

static void a_snapshot_is_the_state_of_its_step(void **state)
{
	snapshots_in_passing(GEMM_MODE_FP32);
}

/* What is saved are the master weights, in fp32. */
static void so_it_is_in_bf16(void **state)
{
	snapshots_in_passing(GEMM_MODE_BF16);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_snapshot_is_the_state_of_its_step),
		cmocka_unit_test(so_it_is_in_bf16),
	};
	return DEVICE_RUN_TESTS(tests, NULL, NULL);
}
#else
#include "tests/unit/skip_main.h"

SKIP_MAIN("this build has no cuBLASLt")
#endif
