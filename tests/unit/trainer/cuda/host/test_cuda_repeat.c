/* SPDX-License-Identifier: Apache-2.0 */
/* Every operation again and again while copies and NCCL are busy: the same bits each time.
 * test_gpu_repeat at the size of a training of GPT-2 124M, test_cuda_repeat on the host at small
 * ones, there in other orders of threads. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#ifdef HAVE_CUBLAS
#include "common/clock.h"
#include "tests/shim/device.h"
#include "tests/shim/digest.h"
#include "tests/unit/hang.h"
#include "tests/unit/trainer/cuda/host/gpu_noise.h"
#include "tests/unit/trainer/cuda/host/op_device.h"
#include "tests/unit/trainer/cuda/host/op_run.h"
#include "trainer/cuda/host/cuda.h"

#define NOISE_PAUSE 0.001 /* for it to come to that */

static struct gpu_noise *noise;
static struct op_sizes sizes;
static size_t runs;

static int begin(void **state)
{
	sizes = op_device_full_size();
	noise = gpu_noise_begin(op_device_noise(), op_device_is_gpu());
	if (gpu_noise_missing(noise))
		print_message("# no collectives run beside: %s\n", gpu_noise_missing(noise));
	return 0;
}

static int end(void **state)
{
	print_message("# %zu runs; beside them %zu rounds of copies and %zu of collectives\n", runs,
		gpu_noise_copies(noise), gpu_noise_collectives(noise));
	gpu_noise_end(noise);
	return 0;
}

/* ---- digests ---- */

/* A row of them a time, one number an operand. */
static void digest_outputs(const struct op_run *run, uint64_t *row)
{
	struct cuda *cuda = cuda_of(run->ops->device);
	for (int i = 0; i < op_run_operands(run); i++)
		if (op_run_writes(run, i))
			CUDA_RUN(run->ops->device,
				digest(row + i, run->at[i], op_run_bytes(run, i), cuda->stream));
}

/* The first time, counted from 0, that an operand is another one than at time 0, and which it is;
 * 0: never. */
static int first_other(const uint64_t *rows, int times, int *operand)
{
	for (int t = 1; t < times; t++)
		for (*operand = 0; *operand < OP_OPERANDS; (*operand)++)
			if (rows[t * OP_OPERANDS + *operand] != rows[*operand])
				return t;
	return 0;
}

/* All are queued before the host waits for one. */
static int repeat(struct op_run *run, int *operand)
{
	const int times = op_device_times();
	const size_t count = (size_t)times * OP_OPERANDS;
	struct err err = { 0 };
	struct ops *ops = run->ops;
	uint64_t *rows = ops->device->alloc(ops->device, count * sizeof *rows),
			 *read = calloc(count, sizeof *read);
	assert_true(rows && read);
	for (int t = 0; t < times; t++) {
		device_order(t % device_orders());
		op_run_once(run);
		device_order(0);
		digest_outputs(run, rows + t * OP_OPERANDS);
	}
	ops->device->copy_out(ops->device, read, rows, count * sizeof *rows);
	if (device_check(ops->device, &err) < 0)
		fail_msg("%s: %s", run->op->name, err.text);
	int other = first_other(read, times, operand);
	runs += (size_t)times;
	ops->device->release(ops->device, rows);
	free(read);
	return other;
}

/* Until copies and collectives have gone on meanwhile: a short operation is done before they
 * notice. */
static int repeat_in_noise(struct op_run *run, int *operand)
{
	size_t copies = gpu_noise_copies(noise), collectives = gpu_noise_collectives(noise);
	struct deadline deadline = deadline_in(HANG_SECONDS);
	for (;;) {
		int other = repeat(run, operand);
		bool copied = gpu_noise_copies(noise) > copies;
		bool collected = gpu_noise_missing(noise) || gpu_noise_collectives(noise) > collectives;
		if (other || (copied && collected))
			return other;
		if (!deadline_sleep(deadline, NOISE_PAUSE))
			fail_msg("nothing runs beside: the copies%s stand still",
				collected ? "" : " or the collectives");
	}
}

/* ---- tests ---- */

static void same_bits(enum gemm_mode mode)
{
	struct ops *ops = op_device_create(mode);
	int wrong = 0;
	op_run_prepare(ops, &sizes);
	for (size_t i = 0; i < op_case_count; i++) {
		const struct op_case *op = &op_cases[i];
		struct op_run run;
		int operand = 0;
		if (!op_is_there(op, ops) || (mode == GEMM_MODE_TF32 && !op->depth))
			continue;
		op_run_begin(&run, ops, op, &sizes, (uint32_t)(i + 1), ops->element, NULL);
		int other = repeat_in_noise(&run, &operand);
		if (other) {
			print_message("# %s: %s has other bits at time %d than at time 0\n", op->name,
				op->operands[operand].name, other);
			wrong++;
		}
		op_run_end(&run);
	}
	ops->destroy(ops);
	if (wrong)
		fail_msg("%d operations don't repeat themselves: see above", wrong);
}

static void bf16_has_the_same_bits(void **state)
{
	same_bits(GEMM_MODE_BF16);
}
static void fp32_has_the_same_bits(void **state)
{
	same_bits(GEMM_MODE_FP32);
}
/* Only products differ from those of fp32. */
static void tf32_has_the_same_bits(void **state)
{
	same_bits(GEMM_MODE_TF32);
}

/* ---- what doesn't repeat itself is told ---- */

static struct ops right;
static int calls;

/* Once, its last element is another one. */
static void add_wandering(struct ops *ops, float *out, const float *a, const float *b, size_t count)
{
	right.add(ops, out, a, b, count);
	if (calls++ == 4)
		right.add(ops, out + count - 1, out + count - 1, a, 1);
}

static void one_other_element_is_told(void **state)
{
	struct ops *ops = op_device_create(GEMM_MODE_FP32);
	struct op_run run;
	size_t i = 0;
	int operand = -1;
	op_run_prepare(ops, &sizes);
	while (op_cases[i].function != offsetof(struct ops, add))
		i++;
	right = *ops;
	ops->add = add_wandering;
	op_run_begin(&run, ops, &op_cases[i], &sizes, 1, ops->element, NULL);
	assert_int_equal(repeat(&run, &operand), 4);
	assert_int_equal(operand, 0);
	assert_int_equal(repeat(&run, &operand), 0);
	op_run_end(&run);
	ops->destroy(ops);
}

/* The same words at other places, a bit of the last ones, and one byte less. */
static void digests_tell_memory_apart(void **state)
{
	unsigned char bytes[1027];
	uint64_t digests[5], *at = device_make(sizeof digests);
	unsigned char *memory = device_make(sizeof bytes);
	for (size_t i = 0; i < sizeof bytes; i++)
		bytes[i] = (unsigned char)(i / 4 % 7);
	device_write(at, (uint64_t[5]) { 0 }, sizeof digests);
	for (int i = 0; i < 5; i++) {
		bytes[i == 1 ? 1026 : i == 2 ? 1023 : 0] ^= (unsigned char)(i == 1 || i == 2);
		if (i == 3) {
			bytes[0] = 1;
			bytes[4] = 0;
		}
		device_write(memory, bytes, sizeof bytes);
		assert_int_equal(digest(at + i, memory, sizeof bytes - (i == 4), NULL), 0);
	}
	device_read(digests, at, sizeof digests);
	for (int i = 0; i < 5; i++)
		for (int k = 0; k < i; k++)
			assert_true(digests[i] != digests[k]);
	device_free(at), device_free(memory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(digests_tell_memory_apart),
		cmocka_unit_test(one_other_element_is_told),
		cmocka_unit_test(bf16_has_the_same_bits),
		cmocka_unit_test(fp32_has_the_same_bits),
		cmocka_unit_test(tf32_has_the_same_bits),
	};
	return DEVICE_RUN_TESTS(tests, begin, end);
}
#else
#include "tests/unit/skip_main.h"

SKIP_MAIN("this build has no cuBLASLt")
#endif
