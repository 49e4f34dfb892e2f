/* SPDX-License-Identifier: Apache-2.0 */
/* Adds the tensors of a kind of model to its table, and finds places for its activations. */
#include "trainer/model/model_kind.h"

#define SLICE_ALIGN 256 /* bytes; the alignment that a GPU's matrix products are chosen for */
#define SLICE_LIMIT \
	(SIZE_MAX >> 2) /* more than any machine has; an absurd sum stops here and does not wrap */

static void *slice_bytes(struct slicer *slicer, size_t count, size_t size)
{
	void *p = slicer->base ? slicer->base + slicer->used : NULL;
	size_t bytes = count < SLICE_LIMIT / size
		? (count * size + SLICE_ALIGN - 1) / SLICE_ALIGN * SLICE_ALIGN
		: SLICE_LIMIT;
	slicer->used = bytes < SLICE_LIMIT - slicer->used ? slicer->used + bytes : SLICE_LIMIT;
	return p;
}

float *slice(struct slicer *slicer, size_t activations)
{
	return slice_bytes(slicer, activations, slicer->element);
}

float *slice_floats(struct slicer *slicer, size_t floats)
{
	return slice_bytes(slicer, floats, sizeof(float));
}

int model_add(struct model *model, const struct tensor *row, size_t *offset, struct err *err)
{
	if (tensor_table_add(&model->table, row, err) < 0)
		return err_prefix(err, "model");
	*offset = model->table.rows[model->table.count - 1].offset;
	return 0;
}

int model_check(const char *flag, int value, int limit, struct err *err)
{
	if (value < 1 || value > limit)
		return err_fail(err, EXIT_USAGE, "model: couldn't use %s %d: it must be from 1 to %d", flag,
			value, limit);
	return 0;
}
