/* SPDX-License-Identifier: Apache-2.0 */
/* A snapshot: the training state of one step in host memory, described so that it can be written by
 * any process that maps that memory. Pointers are borrowed and must stay valid and unchanged until
 * the save returns. */
#ifndef MUSTER_SNAPSHOT_H
#define MUSTER_SNAPSHOT_H

#include <stddef.h>
#include <stdint.h>

#include "checkpoint/format/safetensors.h"

/* A whole logical tensor of the model in compute dtype: row-major, without padding. */
struct snapshot_tensor {
	const char *name; /* Hugging Face's */
	enum safetensors_dtype dtype;
	int dims;
	int64_t shape[SAFETENSORS_DIMS];
	int writer;       /* which of the snapshot's parts writes it, from 0 */
	const void *data; /* NULL where another part has it */
};

/* The optimizer's states, each fp32 and element by element with the tensor they belong to. */
enum snapshot_state { SNAPSHOT_MASTER, SNAPSHOT_M, SNAPSHOT_V, SNAPSHOT_STATES };

/* Elements [first, first + count) of a tensor, flattened in row-major order. */
struct snapshot_slice {
	const char *tensor; /* a name of the model's tensors */
	uint64_t first, count;
	int writer;                          /* as above */
	const float *state[SNAPSHOT_STATES]; /* NULL where another part has it */
};

struct snapshot {
	int64_t step; /* steps done */
	int attempt;
	int world_size;
	uint64_t seed;
	uint64_t cursor;           /* the sampler's position, below 2^63 */
	double loss;               /* NAN: not known */
	double validation_loss;    /* measured at this very step; NAN: not measured */
	const char *config_json;   /* {"identity": {…}, "schedule": {…}, "operation": {…}} */
	const char *numerics_json; /* {…} */
	const char *model_json;    /* the text of config.json */
	const struct snapshot_tensor *tensors;
	size_t tensor_count;
	const struct snapshot_slice *slices;
	size_t slice_count;
	/* All parts list the same tensors and slices, in the same order, and plan the same files
	 * (checkpoint/save/shard_plan.h). */
	int part, parts;     /* this one, from 0, of how many; parts 0 counts as 1 */
	uint64_t shard_size; /* bytes of a shard's data at most (a larger tensor has a file of its own);
							0: no limit */
};

/* "master", "m", "v". */
static inline const char *snapshot_state_name(enum snapshot_state state)
{
	static const char *const names[SNAPSHOT_STATES] = { "master", "m", "v" };
	return names[state];
}

#endif
