/* SPDX-License-Identifier: Apache-2.0 */
/* Arenas of a training and their way from rank 0 to all ranks. */
#include "trainer/state.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/hash.h"
#include "trainer/agree.h"
#include "trainer/optimizer.h"

#define CHUNK_BYTES ((size_t)16 << 20) /* of a broadcast (small enough for a deadline by progress), and of a copy by one thread */

int state_alloc(struct state *state, struct ops *ops, const struct tensor_table *tensors, struct err *err)
{
	size_t bytes = tensors->elements * sizeof(float);
	*state = (struct state){ .tensors = tensors, .ops = ops };
	state->weights = ops->alloc(ops, bytes);
	state->m = ops->alloc(ops, bytes);
	state->v = ops->alloc(ops, bytes);
	if (state->weights && state->m && state->v)
		return 0;
	state_free(state);
	return err_set(err, "memory: couldn't get 3 x %zu MB for weights and moments: use a smaller model, or more memory",
		bytes >> 20);
}

void state_free(struct state *state)
{
	float **arenas[] = { &state->weights, &state->m, &state->v };
	for (int i = 0; i < 3; i++) {
		if (*arenas[i] && !state->lent)
			state->ops->release(state->ops, *arenas[i]);
		*arenas[i] = NULL;
	}
	state->next = (struct adamw_state){ 0 };
	state->lent = false;
}

static void copy(float *to, const float *from, size_t bytes)
{
#pragma omp parallel for schedule(dynamic)
	for (size_t at = 0; at < bytes; at += CHUNK_BYTES)
		memcpy((char *)to + at, (const char *)from + at, bytes - at < CHUNK_BYTES ? bytes - at : CHUNK_BYTES);
}

/* One arena after the other, so that there is no more than one of them twice. */
void state_move(struct state *state, const struct adamw_state *to)
{
	float **arenas[] = { &state->weights, &state->m, &state->v }, *const places[] = { to->weights, to->m, to->v };
	for (int i = 0; i < 3; i++) {
		copy(places[i], *arenas[i], state->tensors->elements * sizeof(float));
		if (!state->lent)
			state->ops->release(state->ops, *arenas[i]);
		*arenas[i] = places[i];
	}
	state->lent = true;
}

size_t state_bytes(const struct state *state)
{
	return 3 * state->tensors->elements * sizeof(float);
}

void state_init(struct state *state, uint64_t seed)
{
	size_t bytes = state->tensors->elements * sizeof(float);
	state->step = 0;
	tensor_table_init(state->tensors, seed, state->weights);
	memset(state->m, 0, bytes);
	memset(state->v, 0, bytes);
}

static int share_arena(float *arena, size_t bytes, struct comm *comm, struct err *err)
{
	for (size_t at = 0; at < bytes; at += CHUNK_BYTES) {
		size_t size = bytes - at < CHUNK_BYTES ? bytes - at : CHUNK_BYTES;
		if (comm_wait(comm, comm_broadcast(comm, "weights and moments", (char *)arena + at, size, 0), err) < 0)
			return -1;
	}
	return 0;
}

struct stand {
	uint64_t step;
	struct hash128 hash;
};

static int hash_state(const struct state *state, struct stand *stand, struct err *err)
{
	size_t bytes = state->tensors->elements * sizeof(float);
	struct hasher *hasher = hasher_create();
	if (!hasher)
		return err_set(err, "resume: out of memory");
	hasher_add(hasher, state->weights, bytes);
	hasher_add(hasher, state->m, bytes);
	hasher_add(hasher, state->v, bytes);
	*stand = (struct stand){ state->step, hasher_value(hasher) };
	hasher_destroy(hasher);
	return 0;
}

int state_share(struct state *state, struct comm *comm, struct err *err)
{
	size_t bytes = state->tensors->elements * sizeof(float);
	float *arenas[] = { state->weights, state->m, state->v };
	struct stand mine;
	AUTO_FREE struct stand *all = calloc((size_t)comm_size(comm), sizeof *all);
	if (!all)
		return err_set(err, "resume: out of memory");
	if (comm_wait(comm, comm_broadcast(comm, "step", &state->step, sizeof state->step, 0), err) < 0)
		return -1;
	for (int i = 0; i < 3; i++)
		if (share_arena(arenas[i], bytes, comm, err) < 0)
			return -1;
	if (hash_state(state, &mine, err) < 0)
		return -1;
	if (comm_wait(comm, comm_allgather(comm, "step and hash", &mine, all, sizeof mine), err) < 0)
		return -1;
	for (int rank = 1; rank < comm_size(comm); rank++)
		if (all[rank].step != all[0].step || !hash_equal(all[rank].hash, all[0].hash)) {
			err_fail(err, EXIT_LOST, "resume: rank %d has step %llu with other weights than rank 0 at step %llu: the transfer "
				"is damaged", rank, (unsigned long long)all[rank].step, (unsigned long long)all[0].step);
			return ERR_SHARED;
		}
	return 0;
}

uint64_t state_weights_hash(const struct state *state)
{
	return hash_bytes(state->weights, state->tensors->elements * sizeof(float)).low | 1;
}

void state_update(struct state *state, const float *grads, bool changes)
{
	const struct adamw_state from = { state->weights, state->m, state->v };
	const struct adamw_state to = changes && state->next.weights ? state->next : from;
	optimizer_update(state->ops, state->tensors, &to, &from, grads);
	if (to.weights == from.weights)
		return;
	state->weights = to.weights;
	state->m = to.m;
	state->v = to.v;
	state->next = (struct adamw_state){ 0 };
}

const char *state_find_nonfinite(const struct state *state, const float *grads)
{
	for (int i = 0; i < state->tensors->count; i++) {
		const struct tensor *row = &state->tensors->rows[i];
		for (size_t j = 0; j < row->count; j++)
			if (!isfinite(grads[row->offset + j]))
				return row->name;
	}
	return NULL;
}
