/* SPDX-License-Identifier: Apache-2.0 */
/* Allocates the arenas of the state, shares rank 0's state with all ranks, and moves it onto a
 * device. */
#include "config.h"
#include "trainer/state/state.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "checkpoint/format/snapshot.h"
#include "common/auto.h"
#include "common/hash.h"
#include "trainer/comm/status_exchange.h"
#include "trainer/state/optimizer.h"
#include "trainer/state/prefault.h"

/* Of a broadcast, small enough for a deadline by progress, and of a copy. */
#define CHUNK_BYTES ((size_t)16 << 20)

static size_t arena_bytes(const struct state *state)
{
	return state->tensors->elements * sizeof(float);
}

/* Arenas are mapped where the device would put them out of the host's reach, or where they have
 * gaps. */
static bool is_mapped(const struct state *state, bool moments)
{
	return device_has_memory(state->ops->device) || (moments && state->sharded);
}

/* Pages appear when they are first written. They must be small ones: a huge page would also hold
 * other ranks' elements. */
static float *alloc_sparse(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
		-1, 0);
	if (p == MAP_FAILED)
		return NULL;
	madvise(p, bytes, MADV_NOHUGEPAGE);
	return p;
}

static float *alloc_arena(struct state *state, bool moments)
{
	return is_mapped(state, moments)
		? alloc_sparse(arena_bytes(state))
		: state->ops->device->alloc(state->ops->device, arena_bytes(state));
}

static void start(struct state *state, struct ops *ops, const struct tensor_table *tensors,
	const struct zero_shard *own, size_t own_count)
{
	*state = (struct state) { .tensors = tensors,
		.ops = ops,
		.own = own ? own : &state->whole,
		.own_count = own ? own_count : 1,
		.whole = { 0, 0, tensors->elements },
		.sharded = own != NULL };
}

int state_alloc(struct state *state, struct ops *ops, const struct tensor_table *tensors,
	const struct zero_shard *own, size_t own_count, struct err *err)
{
	start(state, ops, tensors, own, own_count);
	state->weights = alloc_arena(state, false);
	state->m = alloc_arena(state, true);
	state->v = alloc_arena(state, true);
	if (state->weights && state->m && state->v)
		return 0;
	state_free(state);
	return err_set(err,
		"memory: couldn't get 3 x %zu MB for weights and moments: use a smaller model, or more "
		"memory",
		arena_bytes(state) >> 20);
}

int state_alloc_saved(struct state *state, struct ops *ops, const struct tensor_table *tensors,
	const struct zero_shard *own, size_t own_count, struct err *err)
{
	if (device_has_memory(ops->device))
		return state_alloc(state, ops, tensors, own, own_count, err);
	start(state, ops, tensors, own, own_count);
	if (snapshot_memory_create(&state->memory, 1, SNAPSHOT_STATES * arena_bytes(state), err) < 0)
		return -1;
	state->weights = state->memory.base[0];
	state->m = state->weights + tensors->elements;
	state->v = state->m + tensors->elements;
	return 0;
}

void state_prefault(struct state *state)
{
	if (state->memory.buffers == 0)
		return;
	prefault(state->weights, arena_bytes(state));
	for (size_t i = 0; i < state->own_count; i++) {
		size_t first = state->own[i].first, count = state->own[i].end - first;
		prefault(state->m + first, count * sizeof(float));
		prefault(state->v + first, count * sizeof(float));
	}
}

static void release(struct state *state, float *arena, bool moments)
{
	if (!arena)
		return;
	if (is_mapped(state, moments))
		munmap(arena, arena_bytes(state));
	else
		state->ops->device->release(state->ops->device, arena);
}

static void release_device(struct state *state)
{
	float *const arenas[] = { state->on_device.weights, state->on_device.m, state->on_device.v,
		state->compute != state->on_device.weights ? state->compute : NULL };
	for (size_t i = 0; i < sizeof arenas / sizeof arenas[0]; i++)
		if (arenas[i])
			state->ops->device->release(state->ops->device, arenas[i]);
	if (state->chunks)
		state->ops->device->release(state->ops->device, state->chunks);
	state->chunks = NULL;
	state->on_device = (struct adamw_state) { 0 };
	state->compute = NULL;
	hasher_destroy(state->hasher);
	free(state->piece);
	state->hasher = NULL;
	state->piece = NULL;
}

static void release_host(struct state *state)
{
	float **arenas[] = { &state->weights, &state->m, &state->v };
	for (int i = 0; i < 3; i++) {
		if (state->memory.buffers == 0)
			release(state, *arenas[i], i > 0);
		*arenas[i] = NULL;
	}
	snapshot_memory_release(&state->memory);
}

void state_free(struct state *state)
{
	release_device(state);
	release_host(state);
	state->next = (struct adamw_state) { 0 };
}

/* ---- on a device with memory of its own ---- */

/* Number of moments that are kept here. On the device their runs lie one after the other. */
static size_t own_elements(const struct state *state)
{
	size_t elements = 0;
	for (size_t i = 0; i < state->own_count; i++)
		elements += state->own[i].end - state->own[i].first;
	return elements;
}

/* Copies the moments that are kept here to the device. */
static void upload_moments(struct state *state)
{
	float *const host[] = { state->m, state->v },
				 *const to[] = { state->on_device.m, state->on_device.v };
	struct device *device = state->ops->device;
	for (int i = 0; i < 2; i++)
		for (size_t k = 0, at = 0; k < state->own_count; k++) {
			size_t first = state->own[k].first, count = state->own[k].end - first;
			device->copy_in(device, to[i] + at, host[i] + first, count * sizeof(float));
			at += count;
		}
}

/* Makes one table of chunks for an update of `own`, in device memory. */
static int upload_chunks(struct state *state, struct err *err)
{
	struct device *device = state->ops->device;
	size_t count = optimizer_chunks(state->tensors, state->own, state->own_count, NULL, 0);
	AUTO_FREE struct adamw_chunk *chunks = calloc(count + 1, sizeof *chunks);
	state->chunks = chunks ? device->alloc(device, count * sizeof *chunks) : NULL;
	if (!state->chunks)
		return device_check(device, err) < 0
			? -1
			: err_set(err, "memory: couldn't prepare the update: out of memory");
	state->chunk_count =
		optimizer_chunks(state->tensors, state->own, state->own_count, chunks, count);
	device->copy_in(device, state->chunks, chunks, count * sizeof *chunks);
	return 0;
}

static void cast(struct state *state)
{
	if (state->compute != state->on_device.weights)
		state->ops->cast(state->ops, state->compute, state->on_device.weights,
			state->tensors->elements);
}

int state_upload(struct state *state, struct err *err)
{
	struct ops *ops = state->ops;
	struct device *device = ops->device;
	size_t elements = state->tensors->elements, moments = own_elements(state) * sizeof(float);
	if (!device_has_memory(device))
		return 0;
	state->on_device = (struct adamw_state) { device->alloc(device, arena_bytes(state)),
		device->alloc(device, moments), device->alloc(device, moments) };
	state->compute = ops->element == sizeof(float) ? state->on_device.weights
												   : device->alloc(device, elements * ops->element);
	if (!state->on_device.weights || !state->on_device.m || !state->on_device.v
		|| !state->compute) {
		if (device_check(device, err) == 0)
			err_set(err,
				"memory: couldn't get %zu MB on the device for weights and moments: use a smaller "
				"model, or --zero 1 with several ranks",
				(arena_bytes(state) + 2 * moments + elements * ops->element) >> 20);
		return -1;
	}
	state->hasher = hasher_create();
	state->piece = malloc(CHUNK_BYTES);
	if (!state->hasher || !state->piece)
		return err_set(err, "memory: couldn't get %zu MB to compare weights by", CHUNK_BYTES >> 20);
	device->copy_in(device, state->on_device.weights, state->weights, arena_bytes(state));
	upload_moments(state);
	cast(state);
	if (upload_chunks(state, err) < 0)
		return -1;
	release_host(state);
	return device_check(device, err);
}

float *state_compute(const struct state *state)
{
	return state->compute ? state->compute : state->weights;
}

float *state_master(const struct state *state)
{
	return state->on_device.weights ? state->on_device.weights : state->weights;
}

void state_allgather_weights(struct state *state)
{
	if (state->on_device.weights)
		cast(state);
}

size_t state_moment_bytes(const struct state *state)
{
	return 2 * own_elements(state) * sizeof(float);
}

size_t state_bytes(const struct state *state)
{
	return arena_bytes(state) + state_moment_bytes(state);
}

void state_init(struct state *state, uint64_t seed)
{
	state->step = 0;
	tensor_table_init(state->tensors, seed, state->weights);
	state_zero_moments(state);
}

void state_zero_moments(struct state *state)
{
	for (size_t i = 0; i < state->own_count; i++) {
		const struct zero_shard *own = &state->own[i];
		memset(state->m + own->first, 0, (own->end - own->first) * sizeof *state->m);
		memset(state->v + own->first, 0, (own->end - own->first) * sizeof *state->v);
	}
}

static int share_arena(float *arena, size_t bytes, struct comm *comm, struct err *err)
{
	comm_ticket last = 0;
	for (size_t at = 0; at < bytes; at += CHUNK_BYTES) {
		size_t size = bytes - at < CHUNK_BYTES ? bytes - at : CHUNK_BYTES;
		last = comm_broadcast(comm, "weights and moments", (char *)arena + at, size, 0);
	}
	return comm_wait(comm, last, err);
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
	*stand = (struct stand) { state->step, hasher_value(hasher) };
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
			err_fail(err, EXIT_LOST,
				"resume: rank %d has step %llu with other weights than rank 0 at step %llu: the "
				"transfer is damaged",
				rank, (unsigned long long)all[rank].step, (unsigned long long)all[0].step);
			return ERR_SHARED;
		}
	return 0;
}

/* Gives the same hash as of all weights at once. */
static struct hash128 hash_device(struct state *state)
{
	size_t bytes = arena_bytes(state);
	hasher_reset(state->hasher);
	for (size_t at = 0; at < bytes; at += CHUNK_BYTES) {
		size_t size = bytes - at < CHUNK_BYTES ? bytes - at : CHUNK_BYTES;
		state->ops->device->copy_out(state->ops->device, state->piece,
			(const char *)state->on_device.weights + at, size);
		hasher_add(state->hasher, state->piece, size);
	}
	return hasher_value(state->hasher);
}

uint64_t state_weights_hash(struct state *state)
{
	if (state->on_device.weights)
		return hash_device(state).low | 1;
	return hash_bytes(state->weights, state->tensors->elements * sizeof(float)).low | 1;
}

void state_update(struct state *state, const float *grads, bool changes)
{
	const struct adamw_state from = { state->weights, state->m, state->v };
	const struct adamw_state to = changes && state->next.weights ? state->next : from;
	if (state->before)
		state->before(state->before_arg);
	state->before = NULL;
	if (state->on_device.weights) { /* in place: a snapshot holds a copy */
		state->ops->adamw_chunks(state->ops, &state->on_device, &state->on_device, state->compute,
			grads, state->chunks, state->chunk_count);
		return;
	}
	optimizer_update(state->ops, state->tensors, state->own, state->own_count, &to, &from, grads);
	if (to.weights == from.weights)
		return;
	optimizer_keep(state->tensors, &to, &from);
	state->weights = to.weights;
	state->m = to.m;
	state->v = to.v;
	state->next = (struct adamw_state) { 0 };
}
