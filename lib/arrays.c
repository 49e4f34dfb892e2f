/* SPDX-License-Identifier: Apache-2.0 */
/* Turns a program's arrays into the tensors of a snapshot. Each array gets its own aligned place in
 * it. */
#include "config.h"
#include "lib/arrays.h"

#include <inttypes.h>
#include <jansson.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/thread.h"

#define ALIGN 64 /* of each array in a snapshot, bytes */
#define COPY_THREADS 4
#define COPY_LEAST ((size_t)16 << 20) /* bytes that are worth a thread */

/* An array of the program: where it is, and where its copy goes in a snapshot. */
struct place {
	void *data;
	size_t offset, bytes;
	uint64_t elements;
};

static bool is_utf8(const char *text)
{
	json_t *string = json_string(text);
	json_decref(string);
	return string;
}

static int describe_tensor(struct arrays *arrays, const struct muster_tensor *given, bool state,
	struct err *err)
{
	struct snapshot_tensor *tensor = &arrays->tensors[arrays->count];
	struct place *place = &arrays->places[arrays->count];
	if (!given->name || !given->name[0] || !given->dtype)
		return err_fail(err, EXIT_USAGE,
			"checkpoint: couldn't use tensor %zu: it needs a name, a dtype and data",
			arrays->count);
	if (!is_utf8(given->name))
		return err_fail(err, EXIT_USAGE,
			"checkpoint: couldn't use tensor %zu: its name is not UTF-8", arrays->count);
	if (given->dims < 0 || given->dims > SAFETENSORS_DIMS)
		return err_fail(err, EXIT_USAGE,
			"checkpoint: couldn't use tensor %s: it has %d dimensions: 0 to %d are possible",
			given->name, given->dims, SAFETENSORS_DIMS);
	*tensor = (struct snapshot_tensor) { .dims = given->dims, .state = state };
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
		return err_fail(err, EXIT_USAGE,
			"checkpoint: couldn't use tensor %s: its shape is out of range", given->name);
	if (!given->data && place->elements > 0)
		return err_fail(err, EXIT_USAGE,
			"checkpoint: couldn't use tensor %s: it needs a name, a dtype and data", given->name);
	place->data = given->data;
	place->bytes = (size_t)place->elements * width;
	place->offset = arrays->bytes;
	arrays->bytes += (place->bytes + ALIGN - 1) / ALIGN * ALIGN;
	tensor->name = strdup(given->name);
	if (!tensor->name)
		return err_set(err, "checkpoint: out of memory");
	arrays->count++;
	return 0;
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int check_names(const struct arrays *arrays, struct err *err)
{
	const char **names = calloc(arrays->count + 1, sizeof *names);
	if (!names)
		return err_set(err, "checkpoint: out of memory");
	for (size_t i = 0; i < arrays->count; i++)
		names[i] = arrays->tensors[i].name;
	qsort(names, arrays->count, sizeof *names, compare_names);
	int rc = 0;
	for (size_t i = 1; i < arrays->count && rc == 0; i++)
		if (strcmp(names[i - 1], names[i]) == 0)
			rc = err_fail(err, EXIT_USAGE,
				"checkpoint: couldn't use tensor %s: two tensors have this name", names[i]);
	free(names);
	return rc;
}

static int describe(struct arrays *arrays, const struct muster_tensor *model, size_t model_count,
	const struct muster_tensor *state, size_t state_count, struct err *err)
{
	const size_t count = model_count + state_count;
	arrays->tensors = calloc(count + 1, sizeof *arrays->tensors);
	arrays->places = calloc(count + 1, sizeof *arrays->places);
	if (!arrays->tensors || !arrays->places)
		return err_set(err, "checkpoint: out of memory");
	for (size_t i = 0; i < model_count; i++)
		if (describe_tensor(arrays, &model[i], false, err) < 0)
			return -1;
	for (size_t i = 0; i < state_count; i++)
		if (describe_tensor(arrays, &state[i], true, err) < 0)
			return -1;
	return check_names(arrays, err);
}

int arrays_open(struct arrays *arrays, const struct muster_tensor *model, size_t model_count,
	const struct muster_tensor *state, size_t state_count, struct err *err)
{
	*arrays = (struct arrays) { 0 };
	if (describe(arrays, model, model_count, state, state_count, err) == 0)
		return 0;
	arrays_release(arrays);
	return -1;
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
		arrays->tensors[i].data = (const char *)base + arrays->places[i].offset;
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
		if (from < to)
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
