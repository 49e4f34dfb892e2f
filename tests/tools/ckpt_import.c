/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the checkpoint of a model from elsewhere out of one of ours: only the weights, in another
 * precision. ckpt_import SOURCE STEP DIR F32|F16|BF16 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/directory/owner.h"
#include "checkpoint/load/ckpt.h"
#include "checkpoint/save/ckpt_save.h"
#include "common/bytes.h"

static const char *const model_options[] = { "model", "layers", "width", "heads", "context",
	"vocabulary" };

static int fail(const struct err *err)
{
	fprintf(stderr, "ckpt_import: %s\n", err->text);
	return (int)err->status;
}

/* Towards zero; what binary16 has no normal number for becomes 0. */
static uint16_t half_of(float value, enum safetensors_dtype dtype)
{
	uint32_t bits = bytes_of_float(value), exponent = bits >> 23 & 255;
	if (dtype == SAFETENSORS_BF16)
		return (uint16_t)(bits >> 16);
	if (exponent < 113)
		return 0;
	return (uint16_t)(bits >> 16 & 0x8000) | (uint16_t)((exponent - 112) << 10)
		| (uint16_t)(bits >> 13 & 1023);
}

static int copy_tensor(struct ckpt *ckpt, size_t index, enum safetensors_dtype dtype,
	struct snapshot_tensor *to, struct err *err)
{
	const struct safetensors_tensor *from = ckpt_tensor_at(ckpt, index);
	uint64_t count;
	if (safetensors_elements(from->shape, from->dims, &count) < 0)
		return err_set(err, "%s has no size", from->name);
	float *values = calloc(count, sizeof *values);
	uint16_t *halves = calloc(count, sizeof *halves);
	if (!values || !halves || ckpt_read_tensor(ckpt, from->name, 0, count, values, err) != 0)
		return err_prefix(err, "tensor");
	*to = (struct snapshot_tensor) { .name = from->name,
		.dtype = dtype,
		.dims = from->dims,
		.data = dtype == SAFETENSORS_F32 ? (void *)values : halves };
	memcpy(to->shape, from->shape, sizeof to->shape);
	for (uint64_t i = 0; i < count; i++)
		bytes_put_le16(&halves[i], half_of(values[i], dtype));
	return 0;
}

static char *config_of(const struct manifest *manifest)
{
	json_t *identity = json_object(), *recorded = json_object_get(manifest->config, "identity");
	for (size_t i = 0; i < sizeof model_options / sizeof model_options[0]; i++)
		json_object_set(identity, model_options[i], json_object_get(recorded, model_options[i]));
	json_t *config = json_pack("{s:o, s:{}, s:{}, s:b}", "identity", identity, "schedule",
		"operation", "imported", 1);
	char *text = json_dumps(config, 0);
	json_decref(config);
	return text;
}

int main(int argc, char **argv)
{
	struct ckpt_dir source, dir;
	struct owner owner = { 0 };
	struct ckpt *ckpt;
	struct err err = { 0 };
	enum safetensors_dtype dtype;
	if (argc != 5 || safetensors_dtype_parse(argv[4], &dtype) < 0) {
		fprintf(stderr, "usage: ckpt_import SOURCE STEP DIR F32|F16|BF16\n");
		return EXIT_USAGE;
	}
	if (ckpt_dir_open(&source, argv[1], &err) < 0 || ckpt_dir_open(&dir, argv[3], &err) < 0
		|| ckpt_open(&source, atoll(argv[2]), 5, &ckpt, &err) < 0
		|| owner_claim(&dir, &owner, NULL, NULL, 10, &err) < 0)
		return fail(&err);
	size_t count = ckpt_tensor_count(ckpt);
	struct snapshot_tensor *tensors = calloc(count, sizeof *tensors);
	for (size_t i = 0; i < count; i++)
		if (copy_tensor(ckpt, i, dtype, &tensors[i], &err) < 0)
			return fail(&err);
	const struct snapshot snapshot = { .world_size = 1,
		.config_json = config_of(ckpt_manifest(ckpt)),
		.numerics_json = "{}",
		.model_json = "{}",
		.tensors = tensors,
		.tensor_count = count };
	if (ckpt_save(&dir, &snapshot, owner.token, NULL, NULL, &err) < 0
		|| owner_release(&dir, owner.token, &err) < 0)
		return fail(&err);
	return 0;
}
