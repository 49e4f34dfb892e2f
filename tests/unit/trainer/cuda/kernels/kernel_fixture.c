/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of kernels share. */
#include "tests/unit/trainer/cuda/kernels/kernel_fixture.h"

#include <stdlib.h>
#include <string.h>

#include "tests/unit/trainer/cuda/kernels/cuda_floats.h"
#include "tests/unit/trainer/ops/ops_fixture.h"

#define MOST 64 /* of each kind in a test */

struct output {
	const char *name;
	void *base, *at; /* at: after the shift */
	const void *initial;
	void *result;
	size_t bytes;
};

static struct output outputs[MOST];
static void *hosts[MOST], *operands[MOST];
static int output_count, host_count, operand_count;
static struct ops *reference;

struct ops *kernel_reference(void)
{
	if (!reference)
		reference = fixture_ops(true, 1, 1, 1, 1, 1);
	return reference;
}

static void *keep(void *host)
{
	assert_non_null(host);
	assert_true(host_count < MOST);
	return hosts[host_count++] = host;
}

void *kernel_host(size_t bytes)
{
	return keep(calloc(1, bytes ? bytes : 1));
}

float *kernel_floats(size_t count, float scale, uint32_t seed, enum cuda_type type)
{
	float *values = keep(fixture_floats(count, scale, seed));
	cuda_floats_round(values, count, type);
	return values;
}

void *kernel_operand(const void *host, size_t bytes, size_t shift_bytes)
{
	char *base = device_make(bytes + shift_bytes);
	assert_true(operand_count < MOST);
	operands[operand_count++] = base;
	device_write(base + shift_bytes, host, bytes);
	return base + shift_bytes;
}

static const void *elements(const float *values, size_t count, enum cuda_type type)
{
	return type == CUDA_FP32 || !values ? values : keep(cuda_floats_packed(values, count, type));
}

void *kernel_tensor(const float *values, size_t count, enum cuda_type type, int shift)
{
	const size_t size = cuda_type_bytes(type);
	return kernel_operand(elements(values, count, type), count * size, (size_t)shift * size);
}

void *kernel_output(const char *name, const void *initial, size_t bytes, size_t shift_bytes)
{
	struct output *output = &outputs[output_count];
	assert_true(output_count++ < MOST);
	*output = (struct output) { .name = name,
		.base = device_make(bytes + shift_bytes),
		.initial = initial,
		.bytes = bytes,
		.result = kernel_host(bytes) };
	output->at = (char *)output->base + shift_bytes;
	return output->at;
}

void *kernel_output_tensor(const char *name, const float *initial, size_t count,
	enum cuda_type type, int shift)
{
	const size_t size = cuda_type_bytes(type);
	return kernel_output(name, elements(initial, count, type), count * size, (size_t)shift * size);
}

static void compare(const struct output *output, const void *again, int order)
{
	const unsigned char *first = output->result, *now = again;
	for (size_t i = 0; i < output->bytes; i++)
		if (first[i] != now[i])
			fail_msg("%s: byte %zu is 0x%02x in order %d, 0x%02x in order 0", output->name, i,
				now[i], order, first[i]);
}

static void run_in(int order, void (*run)(void *arg), void *arg)
{
	for (int i = 0; i < output_count; i++) {
		device_poison(outputs[i].at, outputs[i].bytes);
		if (outputs[i].initial)
			device_write(outputs[i].at, outputs[i].initial, outputs[i].bytes);
	}
	device_order(order);
	run(arg);
	device_order(0);
}

void kernel_run(void (*run)(void *arg), void *arg)
{
	for (int order = 0; order < device_orders(); order++) {
		run_in(order, run, arg);
		for (int i = 0; i < output_count; i++) {
			void *again = malloc(outputs[i].bytes + 1);
			assert_non_null(again);
			device_read(order ? again : outputs[i].result, outputs[i].at, outputs[i].bytes);
			if (order)
				compare(&outputs[i], again, order);
			free(again);
		}
	}
}

const void *kernel_result(const void *output)
{
	for (int i = 0; i < output_count; i++)
		if (outputs[i].at == output)
			return outputs[i].result;
	fail_msg("no output is there");
	return NULL;
}

float *kernel_values(const void *output, size_t count, enum cuda_type type)
{
	return keep(cuda_floats_of(kernel_result(output), count, type));
}

void kernel_done(void)
{
	while (output_count)
		device_free(outputs[--output_count].base);
	while (operand_count)
		device_free(operands[--operand_count]);
	while (host_count)
		free(hosts[--host_count]);
	if (reference)
		reference->destroy(reference);
	reference = NULL;
}
