/* SPDX-License-Identifier: Apache-2.0 */
/* The sample: a matrix whose optimizer state lies in two slices, a vector, and a tensor in BF16. */
#include "tests/tools/ckpt_sample.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "checkpoint/save/shard_plan.h"
#include "common/auto.h"

#define MATRIX "transformer.wte.weight"
#define VECTOR "transformer.ln_f.bias"
#define HALF "transformer.h.0.attn.c_attn.bias"

/* Exact in fp32, different for every step, place and element. */
static float value(int64_t step, int place, size_t element)
{
	return (float)(step * 512 + place * 64 + (int64_t)element) / 1024.0f - 3.0f;
}

static void fill_values(struct ckpt_sample *sample, int64_t step)
{
	for (size_t i = 0; i < 35; i++)
		sample->matrix[i] = value(step, 0, i);
	for (size_t i = 0; i < 5; i++)
		sample->vector[i] = value(step, 1, i);
	for (size_t i = 0; i < 3; i++)
		sample->half[i] = (uint16_t)(step * 8 + (int64_t)i);
	for (int s = 0; s < SNAPSHOT_STATES; s++)
		for (size_t i = 0; i < CKPT_SAMPLE_ELEMENTS; i++) {
			sample->state[s][0][i] = value(step, 2 + 2 * s, i);
			sample->state[s][1][i] = value(step, 3 + 2 * s, i);
		}
}

static void add_slice(struct ckpt_sample *sample, int index, const char *tensor, int which,
	uint64_t first, uint64_t count)
{
	struct snapshot_slice *slice = &sample->slices[index];
	*slice = (struct snapshot_slice) { .tensor = tensor, .first = first, .count = count };
	for (int s = 0; s < SNAPSHOT_STATES; s++)
		slice->state[s] = sample->state[s][which] + first;
}

void ckpt_sample_fill(struct ckpt_sample *sample, int64_t step)
{
	memset(sample, 0, sizeof *sample);
	fill_values(sample, step);
	/* The narrow one first and the slices out of order: the writer and the reader must not care. */
	sample->tensors[0] = (struct snapshot_tensor) { .name = HALF,
		.dtype = SAFETENSORS_BF16,
		.dims = 1,
		.shape = { 3 },
		.data = sample->half };
	sample->tensors[1] = (struct snapshot_tensor) { .name = MATRIX,
		.dtype = SAFETENSORS_F32,
		.dims = 2,
		.shape = { 7, 5 },
		.data = sample->matrix };
	sample->tensors[2] = (struct snapshot_tensor) { .name = VECTOR,
		.dtype = SAFETENSORS_F32,
		.dims = 1,
		.shape = { 5 },
		.data = sample->vector };
	add_slice(sample, 0, MATRIX, 0, 20, 15);
	add_slice(sample, 1, VECTOR, 1, 0, 5);
	add_slice(sample, 2, MATRIX, 0, 0, 20);
	sample->snapshot = (struct snapshot) {
		.at = { .step = step,
			.cursor = (uint64_t)step * 16,
			.loss = 1.0 / (double)(step + 3),
			.validation_loss = step % 2 ? NAN : 2.0 / (double)(step + 3) },
		.attempt = 2,
		.world_size = 4,
		.seed = 18446744073709551557ull,
		.config_json = "{\"identity\": {\"model\": \"gpt2\", \"slots\": 8}, \"schedule\": {\"lr\": "
					   "0.0003}, \"operation\": {}}",
		.numerics_json = "{\"reduction\": \"canonical\"}",
		.model_json = "{\"model_type\": \"gpt2\"}\n",
		.tensors = sample->tensors,
		.tensor_count = CKPT_SAMPLE_TENSORS,
		.slices = sample->slices,
		.slice_count = CKPT_SAMPLE_SLICES,
	};
}

/* ---- the state ---- */

#define AVERAGE "average"

/* The whole tensor, of 4 × 6. */
static float average(int64_t step, size_t row, size_t column)
{
	return value(step, 7, row * 6 + column);
}

/* A box of the average, whose values come after those of the boxes before it. */
static float *add_box(struct ckpt_sample *sample, int index, int64_t row, int64_t column,
	int64_t rows, int64_t columns, float *values)
{
	sample->box[index] = (struct snapshot_box) { { 4, 6 }, { row, column } };
	sample->tensors[CKPT_SAMPLE_TENSORS + index] = (struct snapshot_tensor) { .name = AVERAGE,
		.dtype = SAFETENSORS_F32,
		.dims = 2,
		.shape = { rows, columns },
		.data = values,
		.state = true,
		.box = &sample->box[index] };
	for (int64_t r = 0; r < rows; r++)
		for (int64_t c = 0; c < columns; c++)
			*values++ = average(sample->snapshot.at.step, (size_t)(row + r), (size_t)(column + c));
	return values;
}

void ckpt_sample_add_state(struct ckpt_sample *sample)
{
	struct snapshot_tensor *more = sample->tensors + CKPT_SAMPLE_TENSORS;
	int64_t step = sample->snapshot.at.step;
	/* The boxes out of order. */
	float *values = add_box(sample, 0, 2, 2, 2, 4, sample->average);
	values = add_box(sample, 1, 0, 0, 2, 6, values);
	add_box(sample, 2, 2, 0, 2, 2, values);
	sample->updates = step * 3;
	more[3] = (struct snapshot_tensor) { .name = "updates",
		.dtype = SAFETENSORS_I64,
		.data = &sample->updates,
		.state = true };
	for (size_t i = 0; i < sizeof sample->generator; i++)
		sample->generator[i] = (uint8_t)((size_t)step * 31 + i);
	more[4] = (struct snapshot_tensor) { .name = "generator",
		.dtype = SAFETENSORS_U8,
		.dims = 1,
		.shape = { sizeof sample->generator },
		.data = sample->generator,
		.state = true };
	more[5] = (struct snapshot_tensor) { .name = "nothing",
		.dtype = SAFETENSORS_F16,
		.dims = 2,
		.shape = { 0, 3 },
		.state = true };
	snprintf(sample->values, sizeof sample->values,
		"{\"epoch\": %lld, \"betas\": {\"$tuple\": [0.9, 0.95]}}", (long long)step);
	sample->snapshot.values_json = sample->values;
	sample->snapshot.tensor_count += CKPT_SAMPLE_STATE;
}

/* ---- parts ---- */

static void deal_out(struct snapshot_tensor *tensors, size_t count, int part, int parts)
{
	uint64_t bytes[CKPT_SAMPLE_TENSORS + CKPT_SAMPLE_STATE];
	int writer[CKPT_SAMPLE_TENSORS + CKPT_SAMPLE_STATE];
	for (size_t i = 0; i < count; i++)
		safetensors_elements(tensors[i].shape, tensors[i].dims, &bytes[i]);
	shard_plan_assign(bytes, count, parts, writer);
	for (size_t i = 0; i < count; i++) {
		tensors[i].writer = writer[i];
		if (writer[i] != part)
			tensors[i].data = NULL;
	}
}

void ckpt_sample_part(struct ckpt_sample *sample, int part, int parts, uint64_t shard_size)
{
	uint64_t bytes[CKPT_SAMPLE_SLICES];
	int writer[CKPT_SAMPLE_SLICES];
	deal_out(sample->tensors, CKPT_SAMPLE_TENSORS, part, parts);
	deal_out(sample->tensors + CKPT_SAMPLE_TENSORS,
		sample->snapshot.tensor_count - CKPT_SAMPLE_TENSORS, part, parts);
	for (size_t i = 0; i < CKPT_SAMPLE_SLICES; i++)
		bytes[i] = sample->slices[i].count;
	shard_plan_assign(bytes, CKPT_SAMPLE_SLICES, parts, writer);
	for (size_t i = 0; i < CKPT_SAMPLE_SLICES; i++) {
		sample->slices[i].writer = writer[i];
		if (writer[i] != part)
			memset(sample->slices[i].state, 0, sizeof sample->slices[i].state);
	}
	sample->snapshot.part = part;
	sample->snapshot.parts = parts;
	sample->snapshot.shard_size = shard_size;
}

/* ---- check ---- */

/* Reads every range of a tensor that ends with it, or with the element before its last. */
static int check_tensor(struct ckpt *ckpt, const struct snapshot_tensor *want, struct err *err)
{
	const struct safetensors_tensor *found = ckpt_tensor_find(ckpt, want->name);
	size_t width = safetensors_dtype_bits(want->dtype) / 8;
	uint64_t count;
	char out[CKPT_SAMPLE_ELEMENTS * 8];
	safetensors_elements(want->shape, want->dims, &count);
	if (!found || found->dtype != want->dtype || found->dims != want->dims
		|| memcmp(found->shape, want->shape, sizeof found->shape) != 0)
		return err_set(err, "%s has not its type and shape", want->name);
	for (uint64_t first = 0; first <= count; first++)
		for (uint64_t less = 0; less < 2 && first + less <= count; less++) {
			uint64_t n = count - first - less;
			int result = ckpt_read_tensor(ckpt, want->name, first, n, out, err);
			if (result < 0)
				return result;
			if (n > 0 && memcmp(out, (const char *)want->data + first * width, n * width) != 0)
				return err_set(err, "the elements of %s differ", want->name);
		}
	return 0;
}

static int check_state(struct ckpt *ckpt, int64_t step, struct err *err)
{
	struct ckpt_sample want;
	float whole[24];
	AUTO_FREE char *text = NULL;
	size_t size;
	ckpt_sample_fill(&want, step);
	ckpt_sample_add_state(&want);
	for (size_t i = 0; i < 24; i++)
		whole[i] = average(step, i / 6, i % 6);
	want.tensors[CKPT_SAMPLE_TENSORS] = (struct snapshot_tensor) { .name = AVERAGE,
		.dtype = SAFETENSORS_F32,
		.dims = 2,
		.shape = { 4, 6 },
		.data = whole,
		.state = true };
	for (size_t i = 0; i < CKPT_SAMPLE_STATE; i++)
		if ((i == 0 || i > 2)
			&& check_tensor(ckpt, &want.tensors[CKPT_SAMPLE_TENSORS + i], err) < 0)
			return -1;
	if (ckpt_read_values(ckpt, &text, &size, err) < 0)
		return -1;
	if (!text || strcmp(text, want.values) != 0 || size != strlen(text))
		return err_set(err, "the values differ");
	return 0;
}

static int check_states(struct ckpt *ckpt, const struct ckpt_sample *want, struct err *err)
{
	static const char *const names[] = { MATRIX, VECTOR };
	static const uint64_t counts[] = { 35, 5 };
	float out[CKPT_SAMPLE_ELEMENTS];
	for (int s = 0; s < SNAPSHOT_STATES; s++)
		for (int t = 0; t < 2; t++)
			for (uint64_t first = 0; first < counts[t]; first += 3) {
				uint64_t n = counts[t] - first;
				if (ckpt_read_state(ckpt, (enum snapshot_state)s, names[t], first, n, out, err) < 0)
					return -1;
				if (memcmp(out, want->state[s][t] + first, n * sizeof *out) != 0)
					return err_set(err, "%s of %s differs",
						snapshot_state_name((enum snapshot_state)s), names[t]);
			}
	return 0;
}

static int same_loss(double one, double other)
{
	return one == other || (isnan(one) && isnan(other));
}

static int same_json(const json_t *found, const char *want)
{
	json_t *object = json_loads(want, 0, NULL);
	int same = json_equal(found, object);
	json_decref(object);
	return same;
}

int ckpt_sample_check(struct ckpt *ckpt, int64_t step, struct err *err)
{
	struct ckpt_sample want;
	const struct manifest *manifest = ckpt_manifest(ckpt);
	ckpt_sample_fill(&want, step);
	const struct snapshot *snapshot = &want.snapshot;
	if (manifest->step != step || manifest->attempt != snapshot->attempt
		|| manifest->seed != snapshot->seed || manifest->world_size != snapshot->world_size
		|| manifest->cursor != snapshot->at.cursor || manifest->loss != snapshot->at.loss
		|| !same_loss(manifest->validation_loss, snapshot->at.validation_loss)
		|| !same_json(manifest->config, snapshot->config_json)
		|| !same_json(manifest->numerics, snapshot->numerics_json))
		return err_set(err, "the manifest is not that of step %lld", (long long)step);
	for (size_t i = 0; i < CKPT_SAMPLE_TENSORS; i++)
		if (check_tensor(ckpt, &want.tensors[i], err) < 0)
			return -1;
	size_t state = manifest->version > 1 ? 4 : 0;
	if (ckpt_tensor_count(ckpt) < CKPT_SAMPLE_TENSORS
		|| ckpt_tensor_total(ckpt) != ckpt_tensor_count(ckpt) + state)
		return err_set(err, "it has not the tensors of the model, or of the state");
	if (state && check_state(ckpt, step, err) < 0)
		return -1;
	return check_states(ckpt, &want, err);
}
