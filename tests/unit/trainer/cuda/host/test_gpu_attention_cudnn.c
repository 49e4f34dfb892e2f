/* SPDX-License-Identifier: Apache-2.0 */
/* cuDNN's attention against ours, where there is a GPU and this build has it: the same numbers,
 * what one wrote read by the other, and the same bits each time, while copies and NCCL are busy. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/bytes.h"
#include "tests/shim/device.h"
#include "tests/unit/trainer/cuda/host/gpu_noise.h"
#include "trainer/cuda/host/attention_cudnn.h"
#include "trainer/cuda/kernels/attention.h"

#define REPEATS 100
#define NOISE_BYTES ((size_t)64 << 20) /* of a copy beside */

static struct gpu_noise *noise;

static uint16_t *random_bf16(size_t count, uint64_t state)
{
	uint16_t *values = malloc(count * sizeof *values);
	for (size_t i = 0; i < count; i++) {
		state = state * 6364136223846793005u + 1442695040888963407u;
		values[i] = bytes_float_to_bf16((float)(state >> 40) * 0x1p-23f - 1);
	}
	return values;
}

/* What a pass wrote, in fp32. */
static float *read_bf16(const void *device, size_t count)
{
	uint16_t *bits = malloc(count * sizeof *bits);
	float *values = malloc(count * sizeof *values);
	device_read(bits, device, count * sizeof *bits);
	for (size_t i = 0; i < count; i++)
		values[i] = bytes_bf16_to_float(bits[i]);
	free(bits);
	return values;
}

static void near(const char *what, const void *device, const void *reference, size_t count)
{
	float *values = read_bf16(device, count), *wanted = read_bf16(reference, count);
	device_near(what, values, wanted, count, 1e-2);
	free(values);
	free(wanted);
}

struct shape {
	int B, T, H, D;
};

static void compare(struct attention_cudnn *cudnn, const struct shape *s)
{
	int C = s->H * s->D;
	size_t rows = (size_t)s->B * (size_t)s->T, count = rows * (size_t)C, sums = rows * (size_t)s->H;
	uint16_t *host_qkv = random_bf16(3 * count, 1), *host_dy = random_bf16(count, 2);
	void *qkv = device_copy(host_qkv, 6 * count), *dy = device_copy(host_dy, 2 * count),
		 *workspace = device_make(attention_cudnn_workspace(cudnn) + 1);
	void *y = device_make(2 * count), *our_y = device_make(2 * count),
		 *dqkv = device_make(6 * count), *our_dqkv = device_make(6 * count);
	float *lse = device_make(4 * sums), *our_lse = device_make(4 * sums),
		  *scratch = device_make(cuda_attention_scratch(s->B, s->T, s->H));
	float *host_lse = malloc(4 * sums), *host_our_lse = malloc(4 * sums);
	char *first = malloc(6 * count), *again = malloc(6 * count);
	struct err err = { 0 };
	assert_int_equal(cuda_attention(our_y, our_lse, qkv, s->B, s->T, C, s->H, CUDA_BF16, NULL), 0);
	assert_int_equal(cuda_attention_backward(our_dqkv, scratch, dy, qkv, our_y, our_lse, s->B, s->T,
						 C, s->H, CUDA_BF16, NULL),
		0);
	for (int i = 0; i < REPEATS; i++) {
		device_poison(dqkv, 6 * count);
		if (attention_cudnn_forward(cudnn, y, lse, qkv, s->B, s->T, C, s->H, workspace, NULL, &err)
				< 0
			|| attention_cudnn_backward(cudnn, dqkv, dy, qkv, y, lse, s->B, s->T, C, s->H,
				   workspace, NULL, &err)
				< 0)
			fail_msg("%s", err.text);
		device_read(i ? again : first, dqkv, 6 * count);
		assert_true(i == 0 || memcmp(first, again, 6 * count) == 0);
	}
	near("y", y, our_y, count);
	near("dqkv", dqkv, our_dqkv, 3 * count);
	device_read(host_lse, lse, 4 * sums);
	device_read(host_our_lse, our_lse, 4 * sums);
	device_near("lse", host_lse, host_our_lse, sums, 1e-3);
	assert_int_equal(attention_cudnn_forward(cudnn, y, lse, qkv, s->B, s->T + 1, C, s->H, workspace,
						 NULL, &err),
		-1);
	void *device[] = { qkv, dy, workspace, y, our_y, dqkv, our_dqkv, lse, our_lse, scratch };
	for (size_t i = 0; i < sizeof device / sizeof device[0]; i++)
		device_free(device[i]);
	void *host[] = { host_qkv, host_dy, host_lse, host_our_lse, first, again };
	for (size_t i = 0; i < sizeof host / sizeof host[0]; i++)
		free(host[i]);
}

static void it_is_like_ours(void **state)
{
	static const struct shape shapes[] = { { 2, 64, 2, 64 }, { 3, 129, 3, 64 }, { 1, 1024, 2, 128 },
		{ 32, 1024, 12, 64 } };
	for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
		const struct shape *s = &shapes[i];
		struct err err = { 0 };
		struct attention_cudnn *cudnn = attention_cudnn_create(s->B, s->T, s->H * s->D, s->H, &err);
		if (!cudnn) {
			print_message("%s\n", err.text);
			skip();
		}
		print_message("%s\n", attention_cudnn_text(cudnn));
		compare(cudnn, s);
		attention_cudnn_destroy(cudnn);
	}
}

static int begin(void **state)
{
	noise = gpu_noise_begin(NOISE_BYTES, true);
	return 0;
}

static int end(void **state)
{
	print_message("# beside it %zu rounds of copies and %zu of collectives\n",
		gpu_noise_copies(noise), gpu_noise_collectives(noise));
	gpu_noise_end(noise);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_is_like_ours),
	};
	return DEVICE_RUN_TESTS(tests, begin, end);
}
