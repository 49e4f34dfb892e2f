/* SPDX-License-Identifier: Apache-2.0 */
/* Reads an open checkpoint: maps (tensor, element range) to positions in files, whose bytes shard.c
 * verifies. */
#include "checkpoint/load/ckpt.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/load/ckpt_private.h"
#include "common/auto.h"

const struct manifest *ckpt_manifest(const struct ckpt *ckpt)
{
	return ckpt->manifest;
}

const struct safetensors_tensor *ckpt_tensor_find(const struct ckpt *ckpt, const char *name)
{
	const struct place *place = ckpt_place_find(ckpt, name);
	return place ? &place->tensor : NULL;
}

size_t ckpt_tensor_count(const struct ckpt *ckpt)
{
	return ckpt->model_count;
}

size_t ckpt_tensor_total(const struct ckpt *ckpt)
{
	return ckpt->place_count;
}

const struct safetensors_tensor *ckpt_tensor_at(const struct ckpt *ckpt, size_t index)
{
	return &ckpt->places[index].tensor;
}

size_t ckpt_tensor_boxes(const struct ckpt *ckpt, size_t index)
{
	return ckpt->places[index].box_count;
}

static int no_range(const struct ckpt *ckpt, const char *what, const char *tensor, uint64_t first,
	uint64_t count, struct err *err)
{
	return err_fail(err, EXIT_DATA,
		"checkpoint: %s has no elements %" PRIu64 " to %" PRIu64 " of the %s of %s", ckpt->name,
		first, first + count, what, tensor);
}

/* A read of a tensor's elements from `first` on. */
struct reading {
	char *out;
	uint64_t first;
	unsigned width; /* bytes of an element */
	struct err *err;
};

static int read_run(void *arg, const struct box *box, uint64_t first, uint64_t count, uint64_t at)
{
	const struct reading *reading = arg;
	const struct entry *entry = box->owner;
	uint64_t offset =
		entry->source->header->data_start + entry->tensor->begin + first * reading->width;
	return shard_read(&entry->source->shard, offset,
		reading->out + (at - reading->first) * reading->width, (size_t)(count * reading->width),
		reading->err);
}

/* The bytes of an element; -1 where they are no whole ones. */
static int element_width(const struct place *place, struct err *err)
{
	unsigned bits = safetensors_dtype_bits(place->tensor.dtype);
	return bits % 8 == 0
		? (int)(bits / 8)
		: err_set(err, "checkpoint: tensor %s has elements of %u bits, which can't be read in part",
			place->tensor.name, bits);
}

int ckpt_read_tensor(struct ckpt *ckpt, const char *name, uint64_t first, uint64_t count, void *out,
	struct err *err)
{
	const struct place *place = ckpt_place_find(ckpt, name);
	uint64_t elements = place ? ckpt_elements(&place->tensor) : 0;
	if (!place || first > elements || count > elements - first)
		return no_range(ckpt, "weights", name, first, count, err);
	int width = element_width(place, err), result = width < 0 ? -1 : 0;
	struct reading reading = { out, first, (unsigned)width, err };
	for (size_t i = 0; result == 0 && i < place->box_count; i++)
		result = box_runs(&place->boxes[i], first, count, read_run, &reading);
	return result;
}

int ckpt_read_box(struct ckpt *ckpt, const char *name, const int64_t *offset, const int64_t *size,
	void *out, struct err *err)
{
	const struct place *place = ckpt_place_find(ckpt, name);
	if (!place || box_outside(place->tensor.dims, place->tensor.shape, offset, size) >= 0)
		return err_fail(err, EXIT_DATA, "checkpoint: %s has no such box of %s", ckpt->name, name);
	int width = element_width(place, err), result = width < 0 ? -1 : 0;
	struct reading reading = { out, 0, (unsigned)width, err };
	struct box wanted = { .dims = place->tensor.dims };
	memcpy(wanted.offset, offset, (size_t)wanted.dims * sizeof *offset);
	memcpy(wanted.size, size, (size_t)wanted.dims * sizeof *size);
	for (size_t i = 0; result == 0 && i < place->box_count; i++)
		result = box_common(&place->boxes[i], &wanted, read_run, &reading);
	return result;
}

/* Reads the one file of a role. */
static int read_role(struct ckpt *ckpt, enum manifest_role role, char **text, size_t *size,
	struct err *err)
{
	struct source *source = ckpt->sources;
	const struct source *end = source + ckpt->manifest->file_count;
	while (source < end && source->shard.file->role != role)
		source++;
	*text = NULL;
	*size = 0;
	if (source == end)
		return 0;
	if (source->shard.file->size > MANIFEST_SIZE_MAX)
		return err_fail(err, EXIT_DATA, "checkpoint: %s has %" PRIu64 " bytes, more than %u",
			source->shard.file->name, source->shard.file->size, MANIFEST_SIZE_MAX);
	size_t bytes = (size_t)source->shard.file->size;
	char *read = malloc(bytes + 1);
	if (!read)
		return err_set(err, "checkpoint: no memory for %s", source->shard.file->name);
	int result = shard_read(&source->shard, 0, read, bytes, err);
	if (result < 0) {
		free(read);
		return result;
	}
	read[bytes] = '\0';
	*text = read;
	*size = bytes;
	return 0;
}

int ckpt_read_values(struct ckpt *ckpt, char **text, size_t *size, struct err *err)
{
	return read_role(ckpt, MANIFEST_VALUES, text, size, err);
}

int ckpt_read_config(struct ckpt *ckpt, char **text, size_t *size, struct err *err)
{
	return read_role(ckpt, MANIFEST_CONFIG, text, size, err);
}

/* The first slice of `tensor` that ends after element `first`; slice_count if there is none. */
static size_t find_slice(const struct ckpt *ckpt, const char *tensor, uint64_t first)
{
	size_t low = 0, high = ckpt->slice_count;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		const struct slice *slice = &ckpt->slices[middle];
		int order = strcmp(slice->tensor->name, tensor);
		if (order < 0 || (order == 0 && slice->first + slice->count <= first))
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

bool ckpt_has_state(const struct ckpt *ckpt, const char *tensor)
{
	size_t i = find_slice(ckpt, tensor, 0);
	return i < ckpt->slice_count && strcmp(ckpt->slices[i].tensor->name, tensor) == 0;
}

/* ---- the optimizer's state ---- */

/* Receives a run of `bytes` bytes at `offset` of a file, which belong at `out`. */
typedef int found_bytes(void *arg, struct source *source, uint64_t offset, size_t bytes, char *out,
	struct err *err);

/* Calls `found` for each run of bytes that the request consists of. */
static int find_state(const struct ckpt *ckpt, const struct ckpt_want *want, found_bytes *found,
	void *arg, struct err *err)
{
	const char *name = snapshot_state_name(want->state);
	uint64_t first = want->first, count = want->count;
	float *out = want->out;
	for (size_t i = find_slice(ckpt, want->tensor, first); count > 0; i++) {
		const struct slice *slice = &ckpt->slices[i];
		if (i == ckpt->slice_count || strcmp(slice->tensor->name, want->tensor) != 0
			|| slice->first > first)
			return no_range(ckpt, name, want->tensor, first, count, err);
		uint64_t skip = first - slice->first, have = slice->count - skip,
				 n = count < have ? count : have;
		const struct safetensors *header = slice->source->header;
		uint64_t offset = header->data_start + safetensors_find(header, name)->begin
			+ (slice->base + skip) * sizeof(float);
		int result =
			found(arg, slice->source, offset, (size_t)(n * sizeof(float)), (char *)out, err);
		if (result < 0)
			return result;
		first += n;
		out += n;
		count -= n;
	}
	return 0;
}

static int read_found(void *arg, struct source *source, uint64_t offset, size_t bytes, char *out,
	struct err *err)
{
	(void)arg;
	return shard_read(&source->shard, offset, out, bytes, err);
}

int ckpt_read_state(struct ckpt *ckpt, enum snapshot_state state, const char *tensor,
	uint64_t first, uint64_t count, float *out, struct err *err)
{
	const struct ckpt_want want = { state, tensor, first, count, out };
	return find_state(ckpt, &want, read_found, NULL, err);
}

/* ---- many requests at once ---- */

static int add_wanted(void *arg, struct source *source, uint64_t offset, size_t bytes, char *out,
	struct err *err)
{
	(void)arg;
	if (source->wanted_count == source->wanted_room) {
		size_t room = 2 * source->wanted_room + 64;
		struct shard_range *more = realloc(source->wanted, room * sizeof *more);
		if (!more)
			return err_set(err, "checkpoint: no memory");
		source->wanted = more;
		source->wanted_room = room;
	}
	source->wanted[source->wanted_count++] = (struct shard_range) { offset, offset + bytes, out };
	return 0;
}

static int by_begin(const void *a, const void *b)
{
	const struct shard_range *x = a, *y = b;
	return (x->begin > y->begin) - (x->begin < y->begin);
}

/* Which part of the checkpoint a process takes. */
struct share {
	int part, parts;
};

/* Scans the chunks of a file that are this part's; of one part all, so that it is verified. */
static int scan_part(struct source *source, const struct share *share, struct err *err)
{
	const struct shard_scanning how = { .ranges = source->wanted, .count = source->wanted_count };
	const struct manifest_file *file = source->shard.file;
	const uint64_t chunks = file->chunk_count, parts = (uint64_t)share->parts,
				   begin = chunks * (uint64_t)share->part / parts * MANIFEST_CHUNK,
				   last = chunks * ((uint64_t)share->part + 1) / parts * MANIFEST_CHUNK,
				   end = last < file->size ? last : file->size;
	return begin < end || share->parts == 1
		? shard_scan(&source->shard, begin, end - begin, &how, err)
		: 0;
}

/* Scans only the chunks that are wanted; neighbouring chunks in one scan. */
static int scan_wanted(struct source *source, struct err *err)
{
	const struct shard_range *wanted = source->wanted;
	const size_t count = source->wanted_count;
	const struct shard_scanning how = { .ranges = wanted, .count = count };
	int result = 0;
	for (size_t i = 0; result == 0 && i < count;) {
		uint64_t begin = wanted[i].begin, end = wanted[i].end;
		for (i++; i < count && wanted[i].begin / MANIFEST_CHUNK <= end / MANIFEST_CHUNK; i++)
			end = wanted[i].end > end ? wanted[i].end : end;
		if (begin < end)
			result = shard_scan(&source->shard, begin, end - begin, &how, err);
	}
	return result;
}

static int scan(struct source *source, const struct share *share, struct err *err)
{
	return share->parts > 1 && source->shard.file->role == MANIFEST_OPTIMIZER
		? scan_wanted(source, err)
		: scan_part(source, share, err);
}

int ckpt_load_share(struct ckpt *ckpt, const struct ckpt_want *wants, size_t count, int part,
	int parts, struct err *err)
{
	const struct share share = { part, parts };
	struct err own;
	int result = 0;
	err = err ? err : &own;
	for (size_t i = 0; result == 0 && i < count; i++)
		result = find_state(ckpt, &wants[i], add_wanted, NULL, err);
	for (size_t i = 0; i < ckpt->manifest->file_count; i++) {
		struct source *source = &ckpt->sources[i];
		if (source->wanted)
			qsort(source->wanted, source->wanted_count, sizeof source->wanted[0], by_begin);
		if (result == 0)
			result = scan(source, &share, err);
		free(source->wanted);
		source->wanted = NULL;
		source->wanted_count = source->wanted_room = 0;
	}
	return result;
}

int ckpt_load(struct ckpt *ckpt, const struct ckpt_want *wants, size_t count, struct err *err)
{
	return ckpt_load_share(ckpt, wants, count, 0, 1, err);
}

int ckpt_verify(struct ckpt *ckpt, struct err *err)
{
	return ckpt_load(ckpt, NULL, 0, err);
}
