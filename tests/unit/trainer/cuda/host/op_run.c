/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/trainer/cuda/host/op_run.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "common/bytes.h"
#include "trainer/cuda/host/cuda.h"

#define PERIOD 1048573 /* values that differ; a prime, so that no row is like the one before */
#define POISON 0xff

/* ---- memory ---- */

static void check(struct ops *ops)
{
	struct err err = { 0 };
	if (device_check(ops->device, &err) < 0)
		fail_msg("%s", err.text);
}

static void *make(struct ops *ops, size_t bytes)
{
	void *memory = ops->device->alloc(ops->device, bytes);
	if (!memory) {
		check(ops);
		fail_msg("couldn't allocate %zu bytes", bytes);
	}
	return memory;
}

static void put(struct ops *ops, void *to, const void *from, size_t bytes)
{
	if (device_has_memory(ops->device))
		ops->device->copy_in(ops->device, to, from, bytes);
	else
		memcpy(to, from, bytes);
}

static void poison(struct ops *ops, void *at, size_t bytes)
{
	if (!device_has_memory(ops->device))
		memset(at, POISON, bytes);
	else
		CUDA_RUN(ops->device, cudaMemsetAsync(at, POISON, bytes, cuda_of(ops->device)->stream));
}

static void restore(struct ops *ops, void *to, const void *from, size_t bytes)
{
	if (!device_has_memory(ops->device))
		memcpy(to, from, bytes);
	else
		CUDA_RUN(ops->device,
			cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice,
				cuda_of(ops->device)->stream));
}

/* ---- operands ---- */

int op_run_operands(const struct op_run *run)
{
	int count = 0;
	while (count < OP_OPERANDS && run->op->operands[count].name)
		count++;
	return count;
}

bool op_run_writes(const struct op_run *run, int i)
{
	enum operand_role role = run->op->operands[i].role;
	return role == OPERAND_OUT || role == OPERAND_BOTH;
}

static size_t size_of(const struct op_run *run, enum operand_kind kind)
{
	switch (kind) {
	case OPERAND_ELEMENTS: return run->ops->element;
	case OPERAND_FLOATS: return sizeof(float);
	case OPERAND_TOKENS:
	case OPERAND_TARGETS: return sizeof(int32_t);
	case OPERAND_DOUBLES: return sizeof(double);
	case OPERAND_CHUNKS: return sizeof(struct adamw_chunk);
	}
	return 0;
}

/* With the rows after it. */
static size_t room_of(const struct op_run *run, int i)
{
	const struct operand *operand = &run->op->operands[i];
	return op_elements(operand->room ? operand->room : operand->shape, &run->sizes);
}

size_t op_run_bytes(const struct op_run *run, int i)
{
	return room_of(run, i) * size_of(run, run->op->operands[i].kind);
}

static uint32_t next(uint32_t *state)
{
	*state = *state * 1664525u + 1013904223u;
	return *state >> 8;
}

static void fill_tokens(int32_t *tokens, size_t count, const struct op_run *run, bool holes,
	uint32_t seed)
{
	for (size_t i = 0; i < count; i++) {
		uint32_t hole = next(&seed);
		tokens[i] = (int32_t)(next(&seed) % (uint32_t)run->sizes.V);
		if (holes && hole % 8 == 0)
			tokens[i] = -1;
	}
}

static void fill_floats(float *values, size_t count, const struct operand *operand, bool narrow,
	uint32_t seed)
{
	for (size_t i = 0; i < count && i < PERIOD; i++) {
		values[i] = operand->middle + operand->scale * ((float)next(&seed) / 8388608.0f - 1.0f);
		if (narrow)
			values[i] = bytes_bf16_to_float(bytes_float_to_bf16(values[i]));
	}
	for (size_t i = PERIOD; i < count; i += PERIOD)
		memcpy(values + i, values, (count - i < PERIOD ? count - i : PERIOD) * sizeof *values);
}

static void fill_chunks(struct adamw_chunk *chunks, size_t count, size_t elements)
{
	for (size_t i = 0; i < count; i++) {
		size_t first = i * ADAMW_CHUNK, left = elements - first;
		chunks[i] = (struct adamw_chunk) { .first = first,
			.moments = first,
			.decay = i >= count / 2,
			.count = (uint32_t)(left < ADAMW_CHUNK ? left : ADAMW_CHUNK) };
	}
}

/* Floats as an operand of this run holds them; `values` is overwritten. */
static void pack(const struct op_run *run, enum operand_kind kind, float *values, size_t count)
{
	uint16_t *narrow = (uint16_t *)(void *)values;
	if (size_of(run, kind) != sizeof *narrow)
		return;
	for (size_t i = 0; i < count; i++)
		narrow[i] = bytes_float_to_bf16(values[i]);
}

static void *values_of(const struct op_run *run, int i, uint32_t seed, size_t element)
{
	const struct operand *operand = &run->op->operands[i];
	size_t count = op_elements(operand->shape, &run->sizes), room = room_of(run, i);
	size_t size = size_of(run, operand->kind);
	float *values = calloc(room ? room : 1, size > sizeof *values ? size : sizeof *values);
	assert_non_null(values);
	seed = (seed * 31 + (uint32_t)i) * 2654435761u;
	if (operand->kind == OPERAND_TOKENS || operand->kind == OPERAND_TARGETS)
		fill_tokens((int32_t *)(void *)values, count, run, operand->kind == OPERAND_TARGETS, seed);
	else if (operand->kind == OPERAND_CHUNKS)
		fill_chunks((struct adamw_chunk *)(void *)values, count, run->sizes.P);
	else
		fill_floats(values, count, operand, operand->kind == OPERAND_ELEMENTS && element == 2,
			seed);
	pack(run, operand->kind, values, room);
	return values;
}

static void begin_operand(struct op_run *run, int i, uint32_t seed, size_t element)
{
	const struct operand *operand = &run->op->operands[i];
	size_t bytes = op_run_bytes(run, i);
	run->at[i] = make(run->ops, bytes);
	if (operand->role != OPERAND_IN && operand->role != OPERAND_BOTH)
		return;
	void *values = values_of(run, i, seed, element);
	if (operand->role == OPERAND_BOTH)
		run->initial[i] = make(run->ops, bytes);
	put(run->ops, run->initial[i] ? run->initial[i] : run->at[i], values, bytes);
	free(values);
}

static void derive(struct op_run *run, const struct op_run *model)
{
	for (int i = 0; model && i < op_run_operands(run); i++) {
		const struct operand *operand = &run->op->operands[i];
		size_t count, room;
		if (operand->role != OPERAND_DERIVED)
			continue;
		float *values = op_run_read(model, i, &count, &room);
		pack(run, operand->kind, values, room);
		put(run->ops, run->at[i], values, op_run_bytes(run, i));
		free(values);
	}
	if (!model && run->op->derive)
		run->op->derive(run->ops, run->at, &run->sizes);
}

void op_run_begin(struct op_run *run, struct ops *ops, const struct op_case *op,
	const struct op_sizes *sizes, uint32_t seed, size_t element, const struct op_run *model)
{
	*run = (struct op_run) { .op = op, .ops = ops, .sizes = op_sizes_of(op, sizes) };
	for (int i = 0; i < op_run_operands(run); i++)
		begin_operand(run, i, seed, element);
	derive(run, model);
	check(ops);
}

void op_run_end(struct op_run *run)
{
	for (int i = 0; i < op_run_operands(run); i++) {
		run->ops->device->release(run->ops->device, run->at[i]);
		if (run->initial[i])
			run->ops->device->release(run->ops->device, run->initial[i]);
	}
	*run = (struct op_run) { 0 };
}

/* ---- a call ---- */

void op_run_once(struct op_run *run)
{
	for (int i = 0; i < op_run_operands(run); i++) {
		size_t bytes = op_run_bytes(run, i);
		if (run->initial[i])
			restore(run->ops, run->at[i], run->initial[i], bytes);
		else if (op_run_writes(run, i))
			poison(run->ops, run->at[i], bytes);
	}
	run->op->run(run->ops, run->at, &run->sizes);
}

/* ---- results ---- */

static void unpack(const struct op_run *run, enum operand_kind kind, const void *bytes,
	float *values, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (size_of(run, kind) == sizeof(double))
			values[i] = (float)((const double *)bytes)[i];
		else if (size_of(run, kind) == sizeof(uint16_t))
			values[i] = bytes_bf16_to_float(((const uint16_t *)bytes)[i]);
		else
			values[i] = ((const float *)bytes)[i];
}

float *op_run_read(const struct op_run *run, int i, size_t *count, size_t *room)
{
	const struct operand *operand = &run->op->operands[i];
	size_t bytes = op_run_bytes(run, i);
	void *copy = malloc(bytes ? bytes : 1);
	*count = op_elements(operand->shape, &run->sizes);
	*room = room_of(run, i);
	float *values = malloc((*room ? *room : 1) * sizeof *values);
	assert_true(copy && values);
	if (device_has_memory(run->ops->device))
		run->ops->device->copy_out(run->ops->device, copy, run->at[i], bytes);
	else
		memcpy(copy, run->at[i], bytes);
	check(run->ops);
	unpack(run, operand->kind, copy, values, *room);
	free(copy);
	return values;
}

static double distance(const float *out, const float *reference, size_t count)
{
	double error = 0, size = 0;
	for (size_t i = 0; i < count; i++) {
		double difference = (double)out[i] - (double)reference[i];
		if (!isfinite(out[i]) || !isfinite(reference[i]))
			return HUGE_VAL;
		error += difference * difference;
		size += (double)reference[i] * (double)reference[i];
	}
	return error == 0 ? 0 : sqrt(error / size);
}

static double distance_of(const struct op_run *run, const struct op_run *reference, int i)
{
	size_t count, room, others;
	float *out = op_run_read(run, i, &count, &room),
		  *expected = op_run_read(reference, i, &count, &others);
	double far = distance(out, expected, count);
	for (size_t k = count; k < room; k++)
		if (out[k] != 0)
			far = HUGE_VAL;
	free(out);
	free(expected);
	return far;
}

double op_run_distance(const struct op_run *run, const struct op_run *reference, const char **worst)
{
	double most = -1;
	for (int i = 0; i < op_run_operands(run); i++) {
		double far = op_run_writes(run, i) ? distance_of(run, reference, i) : -1;
		if (!(far <= most)) {
			most = far;
			*worst = run->op->operands[i].name;
		}
	}
	return most;
}

void op_run_prepare(struct ops *ops, const struct op_sizes *sizes)
{
	const struct ops_shapes shapes = { .batch = sizes->B,
		.positions = sizes->T,
		.width = sizes->C,
		.heads = sizes->H,
		.vocabulary = sizes->V,
		.hidden = sizes->F };
	struct err err = { 0 };
	if (ops->prepare(ops, &shapes, &err) < 0)
		fail_msg("%s", err.text);
	*ops->params = (struct step_params) { .step = 3,
		.learning_rate = 0.01f,
		.beta1 = 0.9f,
		.beta2 = 0.95f,
		.epsilon = 1e-8f,
		.weight_decay = 0.1f,
		.bias1 = 3.690037f,
		.bias2 = 7.011394f,
		.clip = 0.75f,
		.loss_scale = 1.0f / ((float)sizes->B * (float)sizes->T) };
	ops_put_params(ops);
}
