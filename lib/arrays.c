/* SPDX-License-Identifier: Apache-2.0 */
/* Turns a program's arrays into the tensors of a snapshot. Each array that this rank writes gets
 * its own aligned place in it. */
#include "config.h"
#include "lib/arrays.h"

#include <inttypes.h>
#include <jansson.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint/format/boxes.h"
#include "checkpoint/save/shard_plan.h"
#include "common/auto.h"
#include "common/thread.h"

#define ALIGN 64 /* of each array in a snapshot, bytes */
#define COPY_THREADS 4
#define COPY_LEAST ((size_t)16 << 20) /* bytes that are worth a thread */

/* An array of the program: where it is, and where its copy goes in a snapshot. */
struct place {
	void *data;
	size_t offset, bytes; /* the offset only of what this rank writes */
	uint64_t elements;
	size_t given;            /* its index among those that the program gave */
	int rank;                /* that has it; MUSTER_ALL_RANKS: each has it */
	bool own;                /* this rank writes it */
	struct snapshot_box box; /* where the tensor has one */
};

/* ---- what is given ---- */

static bool is_utf8(const char *text)
{
	json_t *string = json_string(text);
	json_decref(string);
	return string;
}

static int refuse(const struct muster_tensor *given, const char *why, struct err *err)
{
	return err_fail(err, EXIT_USAGE, "checkpoint: couldn't use tensor %s: %s", given->name, why);
}

static int check_name(size_t index, const struct muster_tensor *given, struct err *err)
{
	if (!given->name || !given->name[0] || !given->dtype)
		return err_fail(err, EXIT_USAGE,
			"checkpoint: couldn't use tensor %zu: it needs a name, a dtype and data", index);
	if (!is_utf8(given->name))
		return err_fail(err, EXIT_USAGE,
			"checkpoint: couldn't use tensor %zu: its name is not UTF-8", index);
	if (given->dims < 0 || given->dims > SAFETENSORS_DIMS)
		return err_fail(err, EXIT_USAGE,
			"checkpoint: couldn't use tensor %s: it has %d dimensions: 0 to %d are possible",
			given->name, given->dims, SAFETENSORS_DIMS);
	return 0;
}

/* The type and shape of what is given. */
static int take_shape(const struct muster_tensor *given, struct snapshot_tensor *tensor,
	struct place *place, struct err *err)
{
	memcpy(tensor->shape, given->shape, (size_t)given->dims * sizeof given->shape[0]);
	if (safetensors_dtype_parse(given->dtype, &tensor->dtype) < 0
		|| safetensors_dtype_bits(tensor->dtype) % 8)
		return err_fail(err, EXIT_USAGE,
			"checkpoint: couldn't use tensor %s: its type %.20s is none of F64, F32, BF16, F16, "
			"I64, I32, U64, U8 and the other whole-byte types of safetensors",
			given->name, given->dtype);
	const size_t width = safetensors_dtype_bits(tensor->dtype) / 8;
	if (safetensors_elements(tensor->shape, tensor->dims, &place->elements) < 0
		|| place->elements > (SIZE_MAX >> 2) / width)
		return refuse(given, "its shape is out of range", err);
	place->data = given->data;
	place->bytes = (size_t)place->elements * width;
	return 0;
}

static int take_placement(const struct muster_tensor *given,
	const struct muster_placement *placement, struct snapshot_tensor *tensor, struct place *place,
	struct err *err)
{
	const size_t bytes = (size_t)given->dims * sizeof given->shape[0];
	place->rank = placement ? placement->rank : MUSTER_ALL_RANKS;
	if (!placement || !placement->is_box)
		return 0;
	if (!tensor->state)
		return refuse(given, "it is a box, and the model's tensors are saved whole: give all of it",
			err);
	memcpy(place->box.shape, placement->shape, bytes);
	memcpy(place->box.offset, placement->offset, bytes);
	tensor->box = &place->box;
	return 0;
}

static int describe_tensor(struct arrays *arrays, const struct muster_tensor *given,
	const struct muster_placement *placement, bool state, struct err *err)
{
	struct snapshot_tensor *tensor = &arrays->tensors[arrays->count];
	struct place *place = &arrays->places[arrays->count];
	if (check_name(arrays->count, given, err) < 0)
		return -1;
	*tensor = (struct snapshot_tensor) { .dims = given->dims, .state = state };
	*place = (struct place) { .given = arrays->count };
	if (take_shape(given, tensor, place, err) < 0
		|| take_placement(given, placement, tensor, place, err) < 0)
		return -1;
	tensor->name = strdup(given->name);
	if (!tensor->name)
		return err_set(err, "checkpoint: out of memory");
	arrays->count++;
	return 0;
}

static int describe(struct arrays *arrays, const struct muster_state *given, struct err *err)
{
	const size_t count = given->model_count + given->state_count;
	arrays->tensors = calloc(count + 1, sizeof *arrays->tensors);
	arrays->places = calloc(count + 1, sizeof *arrays->places);
	if (!arrays->tensors || !arrays->places)
		return err_set(err, "checkpoint: out of memory");
	for (size_t i = 0; i < given->model_count; i++)
		if (describe_tensor(arrays, &given->model[i],
				given->model_placements ? &given->model_placements[i] : NULL, false, err)
			< 0)
			return -1;
	for (size_t i = 0; i < given->state_count; i++)
		if (describe_tensor(arrays, &given->state[i],
				given->state_placements ? &given->state_placements[i] : NULL, true, err)
			< 0)
			return -1;
	struct err why;
	if (boxes_check_tensors(arrays->tensors, arrays->count, &why) < 0)
		return err_fail(err, EXIT_USAGE, "checkpoint: couldn't use the tensors: %s", why.text);
	return 0;
}

int arrays_open(struct arrays *arrays, const struct muster_state *given,
	const struct writers *writers, struct err *err)
{
	*arrays = (struct arrays) { 0 };
	if (describe(arrays, given, err) == 0 && arrays_divide(arrays, writers, err) == 0)
		return 0;
	arrays_release(arrays);
	return -1;
}

/* ---- who writes what ---- */

/* What all ranks have is divided evenly; `bytes` and `writer` have room for all arrays. */
static void spread(struct arrays *arrays, bool state, int parts, uint64_t *bytes, int *writer)
{
	size_t count = 0;
	for (size_t i = 0; i < arrays->count; i++)
		if (arrays->tensors[i].state == state && arrays->places[i].rank == MUSTER_ALL_RANKS)
			bytes[count++] = arrays->places[i].bytes;
	shard_plan_assign(bytes, count, parts, writer);
	count = 0;
	for (size_t i = 0; i < arrays->count; i++)
		if (arrays->tensors[i].state == state && arrays->places[i].rank == MUSTER_ALL_RANKS)
			arrays->tensors[i].writer = writer[count++];
}

static int assign(struct arrays *arrays, const struct writers *writers, struct err *err)
{
	AUTO_FREE uint64_t *bytes = calloc(arrays->count + 1, sizeof *bytes);
	AUTO_FREE int *writer = calloc(arrays->count + 1, sizeof *writer);
	if (!bytes || !writer)
		return err_set(err, "checkpoint: out of memory");
	spread(arrays, false, writers_count(writers), bytes, writer);
	spread(arrays, true, writers_count(writers), bytes, writer);
	for (size_t i = 0; i < arrays->count; i++) {
		const int rank = arrays->places[i].rank;
		if (rank == MUSTER_ALL_RANKS)
			continue;
		arrays->tensors[i].writer = writers_part(writers, rank);
		if (arrays->tensors[i].writer < 0)
			return err_fail(err, EXIT_USAGE,
				"checkpoint: couldn't use tensor %s: rank %d has it, which doesn't save: choose "
				"MUSTER_WRITERS_ALL in the plan",
				arrays->tensors[i].name, rank);
	}
	return 0;
}

/* Sorts by the writers what is in the same files; otherwise the order stays. */
static int sort(struct arrays *arrays, int parts, struct err *err)
{
	struct snapshot_tensor *tensors = calloc(arrays->count + 1, sizeof *tensors);
	struct place *places = calloc(arrays->count + 1, sizeof *places);
	size_t *next = calloc(2 * (size_t)parts + 1, sizeof *next);
	if (!tensors || !places || !next) {
		free(tensors);
		free(places);
		free(next);
		return err_set(err, "checkpoint: out of memory");
	}
	for (size_t i = 0; i < arrays->count; i++)
		next[arrays->tensors[i].state * parts + arrays->tensors[i].writer + 1]++;
	for (int k = 0; k < 2 * parts; k++)
		next[k + 1] += next[k];
	for (size_t i = 0; i < arrays->count; i++) {
		size_t at = next[arrays->tensors[i].state * parts + arrays->tensors[i].writer]++;
		tensors[at] = arrays->tensors[i];
		places[at] = arrays->places[i];
		if (tensors[at].box)
			tensors[at].box = &places[at].box;
	}
	free(arrays->tensors);
	free(arrays->places);
	free(next);
	arrays->tensors = tensors;
	arrays->places = places;
	return 0;
}

int arrays_divide(struct arrays *arrays, const struct writers *writers, struct err *err)
{
	if (assign(arrays, writers, err) < 0 || sort(arrays, writers_count(writers), err) < 0)
		return -1;
	arrays->bytes = 0;
	for (size_t i = 0; i < arrays->count; i++) {
		struct place *place = &arrays->places[i];
		place->own = arrays->tensors[i].writer == writers->part;
		place->offset = arrays->bytes;
		if (place->own)
			arrays->bytes += (place->bytes + ALIGN - 1) / ALIGN * ALIGN;
	}
	return 0;
}

void arrays_own(const struct arrays *arrays, unsigned char *own)
{
	for (size_t i = 0; i < arrays->count; i++)
		own[arrays->places[i].given] = arrays->places[i].own;
}

int arrays_check_data(const struct arrays *arrays, struct err *err)
{
	for (size_t i = 0; i < arrays->count; i++)
		if (arrays->places[i].own && arrays->places[i].elements > 0 && !arrays->places[i].data)
			return err_fail(err, EXIT_USAGE,
				"checkpoint: couldn't use tensor %s: it needs a name, a dtype and data",
				arrays->tensors[i].name);
	return 0;
}

void arrays_release(struct arrays *arrays)
{
	for (size_t i = 0; i < arrays->count; i++)
		free((char *)arrays->tensors[i].name);
	free(arrays->tensors);
	free(arrays->places);
	*arrays = (struct arrays) { 0 };
}

void arrays_set_base(struct arrays *arrays, const void *base)
{
	for (size_t i = 0; i < arrays->count; i++)
		arrays->tensors[i].data =
			arrays->places[i].own ? (const char *)base + arrays->places[i].offset : NULL;
}

/* What one thread copies: bytes [first, end) of the snapshot. */
struct share {
	const struct arrays *arrays;
	char *snapshot;
	size_t first, end;
	pthread_t thread;
	bool started;
};

static void *copy_share(void *arg)
{
	const struct share *share = arg;
	for (size_t i = 0; i < share->arrays->count; i++) {
		const struct place *place = &share->arrays->places[i];
		size_t from = place->offset > share->first ? place->offset : share->first;
		size_t to = place->offset + place->bytes;
		if (to > share->end)
			to = share->end;
		if (place->own && from < to)
			memcpy(share->snapshot + from, (const char *)place->data + (from - place->offset),
				to - from);
	}
	return NULL;
}

static size_t copy_threads(size_t bytes)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	size_t most = cpus > 0 && cpus < COPY_THREADS ? (size_t)cpus : COPY_THREADS;
	size_t useful = bytes / COPY_LEAST + 1;
	return useful < most ? useful : most;
}

void arrays_copy(const struct arrays *arrays, void *snapshot)
{
	struct share shares[COPY_THREADS];
	const size_t count = copy_threads(arrays->bytes), each = arrays->bytes / count + 1;
	for (size_t i = 0; i < count; i++) {
		shares[i] = (struct share) { arrays, snapshot, i * each, (i + 1) * each, 0, false };
		shares[i].started = i > 0 && thread_start(&shares[i].thread, copy_share, &shares[i]) == 0;
	}
	for (size_t i = 0; i < count; i++)
		if (shares[i].started)
			pthread_join(shares[i].thread, NULL);
		else
			copy_share(&shares[i]);
}

/* Checks that the checkpoint has exactly these tensors. */
static int check_tensors(const struct arrays *arrays, const struct ckpt *from, struct err *err)
{
	int64_t step = ckpt_manifest(from)->step;
	if (ckpt_tensor_total(from) != arrays->count)
		return err_fail(err, EXIT_DATA,
			"resume: the checkpoint of step %" PRId64
			" has %zu tensors, the program %zu: give it a directory of its own",
			step, ckpt_tensor_total(from), arrays->count);
	for (size_t i = 0; i < arrays->count; i++) {
		const struct snapshot_tensor *tensor = &arrays->tensors[i];
		const struct safetensors_tensor *found = ckpt_tensor_find(from, tensor->name);
		if (!found || found->dtype != tensor->dtype || found->dims != tensor->dims
			|| memcmp(found->shape, tensor->shape, (size_t)tensor->dims * sizeof tensor->shape[0])
				!= 0)
			return err_fail(err, EXIT_DATA,
				"resume: the checkpoint of step %" PRId64
				" has %s tensor %s%s: give the program a directory of its own",
				step, found ? "a" : "no", tensor->name, found ? " of another type or shape" : "");
	}
	return 0;
}

int arrays_load(const struct arrays *arrays, struct ckpt *from, struct err *err)
{
	if (check_tensors(arrays, from, err) < 0)
		return -1;
	for (size_t i = 0; i < arrays->count; i++) {
		const struct place *place = &arrays->places[i];
		int rc =
			ckpt_read_tensor(from, arrays->tensors[i].name, 0, place->elements, place->data, err);
		if (rc < 0)
			return rc;
	}
	return 0;
}

int arrays_hash(const struct arrays *arrays, struct hash128 *hash, struct err *err)
{
	struct hasher *hasher = hasher_create();
	if (!hasher)
		return err_set(err, "checkpoint: out of memory");
	for (size_t i = 0; i < arrays->count; i++) {
		const struct snapshot_tensor *tensor = &arrays->tensors[i];
		const int32_t numbers[] = { (int32_t)tensor->dtype, tensor->dims };
		hasher_add(hasher, tensor->name, strlen(tensor->name) + 1);
		hasher_add(hasher, numbers, sizeof numbers);
		hasher_add(hasher, tensor->shape, (size_t)tensor->dims * sizeof tensor->shape[0]);
	}
	*hash = hasher_value(hasher);
	hasher_destroy(hasher);
	return 0;
}
