/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a checkpoint, tensor by tensor. */
#include "config.h"
#include "lib/saved.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/directory/ckpt_dir.h"
#include "checkpoint/format/boxes.h"
#include "checkpoint/format/manifest.h"
#include "common/log.h"
#include "lib/muster_private.h"

struct muster_saved {
	struct ckpt *ckpt;
	char *manifest, *values; /* texts; values is NULL before it was asked for */
};

/* ---- opening ---- */

struct muster_saved *saved_make(struct ckpt *ckpt, struct err *err)
{
	size_t size;
	struct muster_saved *saved = calloc(1, sizeof *saved);
	if (!saved) {
		err_set(err, "checkpoint: out of memory");
		ckpt_close(ckpt);
		return NULL;
	}
	saved->ckpt = ckpt;
	if (manifest_encode(ckpt_manifest(ckpt), &saved->manifest, &size, err) == 0)
		return saved;
	muster_saved_close(saved);
	return NULL;
}

static int open_step(const struct ckpt_dir *dir, int64_t step, double timeout, struct ckpt **ckpt,
	struct err *err)
{
	int rc = ckpt_open(dir, step, timeout, ckpt, err);
	if (rc == 0 && (rc = ckpt_verify(*ckpt, err)) != 0) {
		ckpt_close(*ckpt);
		*ckpt = NULL;
	}
	return rc;
}

static int open_newest(const struct ckpt_dir *dir, double timeout, struct ckpt **ckpt,
	struct err *err)
{
	int64_t *steps;
	size_t count;
	if (ckpt_dir_steps(dir, &steps, &count, err) < 0)
		return -1;
	int rc = err_fail(err, EXIT_DATA, "checkpoint: there is none in %.300s", dir->path);
	while (count > 0) {
		rc = open_step(dir, steps[--count], timeout, ckpt, err);
		if (rc != CKPT_DAMAGED)
			break;
		log_warn("checkpoint: step %" PRId64 " is damaged: %s", steps[count], err->text);
	}
	free(steps);
	return rc;
}

int muster_saved_open(const char *path, int64_t step, double timeout, struct muster_saved **saved)
{
	struct ckpt_dir dir;
	struct ckpt *ckpt;
	struct err err;
	if (muster_check_given(saved, "the place for the struct muster_saved", &err) < 0)
		return muster_failed(&err);
	*saved = NULL;
	if (muster_check_given(path, "the directory", &err) < 0
		|| muster_check_timeout(timeout, &err) < 0 || ckpt_dir_open_existing(&dir, path, &err) < 0)
		return muster_failed(&err);
	timeout = muster_or(timeout, MUSTER_SECONDS);
	int rc = step < 0 ? open_newest(&dir, timeout, &ckpt, &err)
					  : open_step(&dir, step, timeout, &ckpt, &err);
	ckpt_dir_close(&dir);
	if (rc != 0 || !(*saved = saved_make(ckpt, &err)))
		return muster_failed(&err);
	return MUSTER_OK;
}

void muster_saved_close(struct muster_saved *saved)
{
	if (!saved)
		return;
	ckpt_close(saved->ckpt);
	free(saved->manifest);
	free(saved->values);
	free(saved);
}

/* ---- what it holds ---- */

int64_t muster_saved_step(const struct muster_saved *saved)
{
	return saved ? ckpt_manifest(saved->ckpt)->step : -1;
}

const char *muster_saved_manifest(const struct muster_saved *saved)
{
	return saved ? saved->manifest : NULL;
}

int muster_saved_values(struct muster_saved *saved, const char **text)
{
	struct err err;
	size_t size;
	if (muster_check_given(text, "the place for the text", &err) < 0)
		return muster_failed(&err);
	*text = NULL;
	if (muster_check_given(saved, "the struct muster_saved", &err) < 0
		|| (!saved->values && ckpt_read_values(saved->ckpt, &saved->values, &size, &err) != 0))
		return muster_failed(&err);
	*text = saved->values;
	return MUSTER_OK;
}

size_t muster_saved_count(const struct muster_saved *saved, int state)
{
	if (!saved)
		return 0;
	size_t model = ckpt_tensor_count(saved->ckpt);
	return state ? ckpt_tensor_total(saved->ckpt) - model : model;
}

int muster_saved_tensor(const struct muster_saved *saved, int state, size_t index,
	struct muster_tensor *tensor)
{
	struct err err;
	if (muster_check_given(saved, "the struct muster_saved", &err) < 0
		|| muster_check_given(tensor, "the place for the tensor", &err) < 0)
		return muster_failed(&err);
	if (index >= muster_saved_count(saved, state)) {
		err_fail(&err, EXIT_USAGE, "checkpoint: couldn't describe tensor %zu: there are %zu", index,
			muster_saved_count(saved, state));
		return muster_failed(&err);
	}
	size_t first = state ? ckpt_tensor_count(saved->ckpt) : 0;
	const struct safetensors_tensor *found = ckpt_tensor_at(saved->ckpt, first + index);
	*tensor = (struct muster_tensor) { .name = found->name,
		.dtype = safetensors_dtype_name(found->dtype),
		.dims = found->dims };
	memcpy(tensor->shape, found->shape, (size_t)found->dims * sizeof found->shape[0]);
	return MUSTER_OK;
}

/* The tensor that a read is of; NULL with err set if it can't be read. */
static const struct safetensors_tensor *find_readable(struct muster_saved *saved, const char *name,
	struct err *err)
{
	if (muster_check_given(saved, "the struct muster_saved", err) < 0
		|| muster_check_given(name, "the name of a tensor", err) < 0)
		return NULL;
	const struct safetensors_tensor *tensor = ckpt_tensor_find(saved->ckpt, name);
	if (!tensor) {
		err_fail(err, EXIT_DATA,
			"checkpoint: couldn't read tensor %.200s: step %" PRId64 " has none of this name", name,
			muster_saved_step(saved));
		return NULL;
	}
	if (safetensors_dtype_bits(tensor->dtype) % 8 == 0)
		return tensor;
	err_fail(err, EXIT_USAGE,
		"checkpoint: couldn't read tensor %.200s: its elements are not whole bytes", name);
	return NULL;
}

static int check_range(const struct safetensors_tensor *tensor, uint64_t first, uint64_t count,
	struct err *err)
{
	uint64_t elements = 0;
	safetensors_elements(tensor->shape, tensor->dims, &elements);
	if (first > elements || count > elements - first)
		return err_fail(err, EXIT_USAGE,
			"checkpoint: couldn't read elements %" PRIu64 " to %" PRIu64
			" of tensor %.200s: it has %" PRIu64,
			first, first + count, tensor->name, elements);
	return 0;
}

static int check_box(const struct safetensors_tensor *tensor, const int64_t *offset,
	const int64_t *shape, struct err *err)
{
	int d = box_outside(tensor->dims, tensor->shape, offset, shape);
	return d < 0 ? 0
				 : err_fail(err, EXIT_USAGE,
					 "checkpoint: couldn't read %" PRId64 " indices from %" PRId64
					 " on of dimension %d of tensor %.200s: it has %" PRId64,
					 shape[d], offset[d], d, tensor->name, tensor->shape[d]);
}

int muster_saved_read(struct muster_saved *saved, const char *name, uint64_t first, uint64_t count,
	void *data)
{
	struct err err;
	const struct safetensors_tensor *tensor = find_readable(saved, name, &err);
	if (!tensor || check_range(tensor, first, count, &err) < 0
		|| (count > 0 && muster_check_given(data, "the place for the elements", &err) < 0)
		|| (count > 0 && ckpt_read_tensor(saved->ckpt, name, first, count, data, &err) != 0))
		return muster_failed(&err);
	return MUSTER_OK;
}

int muster_saved_read_box(struct muster_saved *saved, const char *name, const int64_t *offset,
	const int64_t *shape, void *data)
{
	struct err err;
	const struct safetensors_tensor *tensor = find_readable(saved, name, &err);
	uint64_t count = 0;
	if (!tensor
		|| (tensor->dims > 0
			&& (muster_check_given(offset, "the offset of the box", &err) < 0
				|| muster_check_given(shape, "the shape of the box", &err) < 0))
		|| check_box(tensor, offset, shape, &err) < 0)
		return muster_failed(&err);
	safetensors_elements(shape, tensor->dims, &count);
	if (count > 0
		&& (muster_check_given(data, "the place for the elements", &err) < 0
			|| ckpt_read_box(saved->ckpt, name, offset, shape, data, &err) != 0))
		return muster_failed(&err);
	return MUSTER_OK;
}
