/* SPDX-License-Identifier: Apache-2.0 */
/* A snapshot: the training state of one step in host memory, described so that any process which
 * maps that memory can write it. Pointers are borrowed; what they point to must stay valid and
 * unchanged until the save returns. */
#ifndef MUSTER_SNAPSHOT_H
#define MUSTER_SNAPSHOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "checkpoint/format/safetensors.h"
#include "common/err.h"

/* Where a box lies in its tensor. Both have as many dimensions as the box. */
struct snapshot_box {
	int64_t shape[SAFETENSORS_DIMS];  /* of the whole tensor */
	int64_t offset[SAFETENSORS_DIMS]; /* of the box's first element */
};

/* A tensor: row-major, without padding. */
struct snapshot_tensor {
	const char *name; /* in the model's files, Hugging Face's name */
	enum safetensors_dtype dtype;
	int dims;
	int64_t shape[SAFETENSORS_DIMS];
	int writer;                     /* the part that writes it, from 0 */
	const void *data;               /* NULL when another part has it */
	bool state;                     /* in the state's files, not in the model's */
	const struct snapshot_box *box; /* of the state: a box of the tensor; NULL: all of it */
};

/* The optimizer's states; each is fp32, with one value for each element of its tensor. */
enum snapshot_state { SNAPSHOT_MASTER, SNAPSHOT_M, SNAPSHOT_V, SNAPSHOT_STATES };

/* Elements [first, first + count) of a tensor, flattened in row-major order. */
struct snapshot_slice {
	const char *tensor; /* the name of one of the model's tensors */
	uint64_t first, count;
	int writer;                          /* the part that writes it, from 0 */
	const float *state[SNAPSHOT_STATES]; /* NULL when another part has them */
};

/* All that changes from one save of a run to the next. */
struct save_step {
	int64_t step;           /* steps done */
	uint64_t cursor;        /* the sampler's position, below 2^63 */
	double loss;            /* NAN: not known */
	double validation_loss; /* measured at this step; NAN: not measured */
};

enum save_outcome {
	SAVE_RUNS,    /* it has not ended */
	SAVE_WRITTEN, /* with several writers: this part is durable */
	SAVE_DURABLE, /* the checkpoint is committed */
	SAVE_FAILED,
	SAVE_REFUSED, /* no service could be found for it */
};

/* What became of a save. The save sets all members but `stall`. The client of the service sets
 * `seconds` anew, and the trainer sets `stall`. */
struct save_result {
	enum save_outcome outcome;
	int64_t step;
	uint64_t bytes; /* written, in all files */
	double seconds; /* from the first system call until it was durable; in a client's result, from
					   the hand-over */
	double stall;   /* seconds that training stood still for it */
	bool taken;     /* a valid checkpoint of this step already existed; ours was discarded */
	struct err err; /* of FAILED and REFUSED; EXIT_FAULT: perhaps the directory has another owner */
};

struct snapshot {
	struct save_step at;
	int attempt;
	int world_size;
	uint64_t seed;
	const char *config_json;   /* {"identity": {…}, "schedule": {…}, "operation": {…}} */
	const char *numerics_json; /* {…} */
	const char *model_json;    /* the text of config.json; NULL: no such file */
	const char *values_json;   /* the text of values.json, an object; NULL: no such file */
	const struct snapshot_tensor *tensors; /* the model's, then the state's */
	size_t tensor_count;
	const struct snapshot_slice *slices;
	size_t slice_count;
	/* All parts list the same tensors and slices in the same order, and plan the same files
	 * (checkpoint/save/shard_plan.h). */
	int part, parts;     /* index of this part, from 0, and their number; parts 0 counts as 1 */
	uint64_t shard_size; /* maximum data bytes of a shard, which only a single larger tensor
							exceeds; 0: no limit */
};

/* "master", "m", "v". */
static inline const char *snapshot_state_name(enum snapshot_state state)
{
	static const char *const names[SNAPSHOT_STATES] = { "master", "m", "v" };
	return names[state];
}

#endif
