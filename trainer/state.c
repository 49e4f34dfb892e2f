/* SPDX-License-Identifier: Apache-2.0 */
/* Arenas of a training and their way from rank 0 to all ranks. */
#include "config.h"
#include "trainer/state.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/auto.h"
#include "common/hash.h"
#include "trainer/agree.h"
#include "trainer/optimizer.h"

#define CHUNK_BYTES ((size_t)16 << 20) /* of a broadcast (small enough for a deadline by progress), and of a copy by one thread */

static size_t arena_bytes(const struct state *state)
{
	return state->tensors->elements * sizeof(float);
}

/* Pages that are there when they are written to. Small ones: a huge page would hold other ranks' elements, too. */
static float *alloc_sparse(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return NULL;
	madvise(p, bytes, MADV_NOHUGEPAGE);
	return p;
}

static float *alloc_moments(struct state *state)
{
	return state->sharded ? alloc_sparse(arena_bytes(state)) : state->ops->alloc(state->ops, arena_bytes(state));
}

static int alloc_all(struct state *state, struct err *err)
{
	state->weights = state->ops->alloc(state->ops, arena_bytes(state));
	state->m = alloc_moments(state);
	state->v = alloc_moments(state);
	if (state->weights && state->m && state->v)
		return 0;
	state_free(state);
	return err_set(err, "memory: couldn't get 3 x %zu MB for weights and moments: use a smaller model, or more memory",
		arena_bytes(state) >> 20);
}

int state_alloc(struct state *state, struct ops *ops, const struct tensor_table *tensors, struct err *err)
{
	*state = (struct state){ .tensors = tensors, .ops = ops };
	return alloc_all(state, err);
}

int state_alloc_shards(struct state *state, struct ops *ops, const struct tensor_table *tensors, const struct zero_shard *own,
	size_t count, struct err *err)
{
	*state = (struct state){ .tensors = tensors, .ops = ops, .own = own, .own_count = count, .sharded = true };
	return alloc_all(state, err);
}

static void release(struct state *state, float *arena, bool moments)
{
	if (!arena || state->lent)
		return;
	if (moments && state->sharded)
		munmap(arena, arena_bytes(state));
	else
		state->ops->release(state->ops, arena);
}

void state_free(struct state *state)
{
	float **arenas[] = { &state->weights, &state->m, &state->v };
	for (int i = 0; i < 3; i++) {
		release(state, *arenas[i], i > 0);
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

static void copy_own(const struct state *state, float *to, const float *from)
{
	for (size_t i = 0; i < state->own_count; i++)
		copy(to + state->own[i].first, from + state->own[i].first,
			(state->own[i].end - state->own[i].first) * sizeof *to);
}

/* One arena after the other, so that there is no more than one of them twice. */
void state_move(struct state *state, const struct adamw_state *to)
{
	float **arenas[] = { &state->weights, &state->m, &state->v }, *const places[] = { to->weights, to->m, to->v };
	for (int i = 0; i < 3; i++) {
		if (i > 0 && state->sharded)
			copy_own(state, places[i], *arenas[i]);
		else
			copy(places[i], *arenas[i], arena_bytes(state));
		release(state, *arenas[i], i > 0);
		*arenas[i] = places[i];
	}
	state->lent = true;
}

size_t state_moment_bytes(const struct state *state)
{
	size_t elements = state->sharded ? 0 : state->tensors->elements;
	for (size_t i = 0; i < state->own_count; i++)
		elements += state->own[i].end - state->own[i].first;
	return 2 * elements * sizeof(float);
}

size_t state_bytes(const struct state *state)
{
	return arena_bytes(state) + state_moment_bytes(state);
}

/* As far as they are kept here. */
static void zero_moments(struct state *state)
{
	size_t bytes = arena_bytes(state);
	if (!state->sharded) {
		memset(state->m, 0, bytes);
		memset(state->v, 0, bytes);
	}
	for (size_t i = 0; i < state->own_count; i++) {
		const struct zero_shard *own = &state->own[i];
		memset(state->m + own->first, 0, (own->end - own->first) * sizeof(float));
		memset(state->v + own->first, 0, (own->end - own->first) * sizeof(float));
	}
}

void state_init(struct state *state, uint64_t seed)
{
	state->step = 0;
	tensor_table_init(state->tensors, seed, state->weights);
	zero_moments(state);
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
	if (!state->sharded) {
		hasher_add(hasher, state->m, bytes);
		hasher_add(hasher, state->v, bytes);
	}
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
	for (int i = 0; i < (state->sharded ? 1 : 3); i++)
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
	if (!state->sharded)
		optimizer_update(state->ops, state->tensors, &to, &from, grads);
	for (size_t i = 0; i < state->own_count; i++)
		optimizer_update_run(state->ops, state->tensors, &to, &from, grads, state->own[i].first, state->own[i].end);
	if (state->sharded)
		optimizer_keep(state->tensors, &to, &from);
	if (to.weights == from.weights)
		return;
	state->weights = to.weights;
	state->m = to.m;
	state->v = to.v;
	state->next = (struct adamw_state){ 0 };
}
