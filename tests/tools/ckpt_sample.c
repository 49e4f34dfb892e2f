/* SPDX-License-Identifier: Apache-2.0 */
/* The sample state: a matrix whose optimizer state lies in two slices, a vector, and a tensor in
 * BF16. */
#include "tests/tools/ckpt_sample.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

#include "checkpoint/save/shard_plan.h"

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
	sample->tensors[0] =
		(struct snapshot_tensor) { HALF, SAFETENSORS_BF16, 1, { 3 }, 0, sample->half };
	sample->tensors[1] =
		(struct snapshot_tensor) { MATRIX, SAFETENSORS_F32, 2, { 7, 5 }, 0, sample->matrix };
	sample->tensors[2] =
		(struct snapshot_tensor) { VECTOR, SAFETENSORS_F32, 1, { 5 }, 0, sample->vector };
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

void ckpt_sample_part(struct ckpt_sample *sample, int part, int parts, uint64_t shard_size)
{
	uint64_t bytes[CKPT_SAMPLE_TENSORS + CKPT_SAMPLE_SLICES];
	int writer[CKPT_SAMPLE_TENSORS + CKPT_SAMPLE_SLICES];
	for (size_t i = 0; i < CKPT_SAMPLE_TENSORS; i++)
		safetensors_elements(sample->tensors[i].shape, sample->tensors[i].dims, &bytes[i]);
	shard_plan_assign(bytes, CKPT_SAMPLE_TENSORS, parts, writer);
	for (size_t i = 0; i < CKPT_SAMPLE_TENSORS; i++) {
		sample->tensors[i].writer = writer[i];
		if (writer[i] != part)
			sample->tensors[i].data = NULL;
	}
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

static int check_weights(struct ckpt *ckpt, const struct ckpt_sample *want, struct err *err)
{
	for (size_t t = 0; t < CKPT_SAMPLE_TENSORS; t++) {
		const struct snapshot_tensor *tensor = &want->tensors[t];
		const struct safetensors_tensor *found = ckpt_tensor_find(ckpt, tensor->name);
		size_t width = safetensors_dtype_bits(tensor->dtype) / 8;
		uint64_t count;
		char out[CKPT_SAMPLE_ELEMENTS * 4];
		safetensors_elements(tensor->shape, tensor->dims, &count);
		if (!found || found->dtype != tensor->dtype || found->dims != tensor->dims
			|| memcmp(found->shape, tensor->shape, sizeof found->shape) != 0)
			return err_set(err, "%s has not its type and shape", tensor->name);
		for (uint64_t first = 0; first <= count; first++) {
			if (ckpt_read_tensor(ckpt, tensor->name, first, count - first, out, err) < 0)
				return -1;
			if (memcmp(out, (const char *)tensor->data + first * width, (count - first) * width)
				!= 0)
				return err_set(err, "the weights of %s differ", tensor->name);
		}
	}
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
	if (check_weights(ckpt, &want, err) < 0)
		return -1;
	return check_states(ckpt, &want, err);
}
