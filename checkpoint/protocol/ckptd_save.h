/* SPDX-License-Identifier: Apache-2.0 */
/* SAVE: one snapshot, with offsets into its buffer instead of pointers, since the two processes map
 * the buffers at different addresses. */
#ifndef MUSTER_CKPTD_SAVE_H
#define MUSTER_CKPTD_SAVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "checkpoint/format/safetensors.h"
#include "checkpoint/format/snapshot.h"
#include "checkpoint/format/snapshot_memory.h"
#include "checkpoint/protocol/ckptd_attach.h"
#include "checkpoint/protocol/ckptd_fields.h"
#include "common/err.h"

struct ckptd_tensor {
	const char *name;
	enum safetensors_dtype dtype;
	int dims;
	int64_t shape[SAFETENSORS_DIMS];
	int64_t writer;
	int64_t offset; /* in the buffer, in bytes; or CKPTD_NO_OFFSET */
	bool state;
	int box_dims, box_offset_dims; /* of a box: `dims`; of a whole tensor: CKPTD_NO_SHAPE */
	struct snapshot_box box;
};

struct ckptd_slice {
	int64_t tensor; /* index into the tensors */
	int64_t first, count;
	int64_t writer;
	int64_t offset[SNAPSHOT_STATES]; /* in the buffer, in bytes; all or none: CKPTD_NO_OFFSET */
};

struct ckptd_save {
	int64_t buffer; /* -1: already written; then there are no tensors and no texts */
	struct save_step at;
	const char *config, *numerics, *model, *values; /* NULL: there is no such text */
	struct ckptd_tensor *tensors;
	struct ckptd_slice *slices;
	size_t tensor_count, slice_count;
};

/* Checks the save against what the client attached with: there is such a buffer; every tensor and
 * slice is in it, aligned; a slice is in its tensor, and a box in its own. 0, or -1 with status
 * EXIT_DATA. Whether the tensors make a checkpoint is for the one who writes it. */
int ckptd_save_check(const struct ckptd_save *save, const struct ckptd_attach *attach,
	struct err *err);

/* Describes the snapshot, whose pointers must point into buffer 0 of `memory`, as what is in
 * `buffer`. Texts are borrowed; the caller frees the two arrays with ckptd_save_release, even after
 * an error. -1 with err set when a pointer is outside the buffer. */
int ckptd_save_describe(struct ckptd_save *save, const struct snapshot *snapshot,
	const struct snapshot_memory *memory, int buffer, struct err *err);
void ckptd_save_release(struct ckptd_save *save);

/* The reverse: a snapshot whose data is in the buffer at `base`. Texts and boxes are borrowed from
 * `save`; ckptd_save_free_snapshot releases its arrays. */
int ckptd_save_snapshot(const struct ckptd_save *save, const struct ckptd_attach *attach,
	const void *base, struct snapshot *snapshot, struct err *err);
void ckptd_save_free_snapshot(struct snapshot *snapshot);

#endif
