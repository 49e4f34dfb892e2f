/* SPDX-License-Identifier: Apache-2.0 */
/* A buffer is a memory file that holds the arenas one after the other; only the pages that are
 * saved are allocated and pinned. */
#include "config.h"
#include "trainer/state/device_snapshot.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "trainer/state/prefault.h"

#define PIECE_LEAST \
	((size_t)32 << 20)  /* bytes of one copy at least; other copies out of the device wait no \
						   longer than for one */
#define PIECES_MOST 512 /* more copies would fill a stream's queue and make the host wait */
#define RING 3          /* staging pieces, used where the buffers aren't pinned */
#define RING_BYTES ((size_t)16 << 20)
#define POLL 0.0002 /* seconds */

_Static_assert(SNAPSHOT_BUFFERS + RING <= DEVICE_TRANSFERS,
	"each buffer and each piece of the ring is a transfer");

/* A run of whole pages of a buffer, in bytes. */
struct span {
	size_t first, end;
};

/* One copy. */
struct piece {
	size_t at; /* byte offset in a buffer */
	const char *device;
	size_t bytes;
};

struct device_snapshot {
	struct device *device;
	struct state *state;
	struct snapshot_memory memory;
	struct span *spans;
	struct piece *pieces;
	size_t span_count, piece_count, room; /* room: pieces that are allocated */
	size_t pinned;                        /* number of pinned spans, counted buffer by buffer */
	char *ring[RING];                     /* NULL where the buffers are pinned */

	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t changed;
	int buffer;     /* of the snapshot begun last */
	bool copying;   /* the ring's copies are not finished */
	bool overtaken; /* the update could not be made to wait; `err` says why */
	struct err err;
	double stalls[SNAPSHOT_BUFFERS]; /* seconds that the host stood still */
	bool waited[SNAPSHOT_BUFFERS];   /* the device was made to wait, too */
};

static const struct copy_stream *copy_stream_of(const struct device_snapshot *snapshot_copy)
{
	return snapshot_copy->device->copy_stream;
}

/* ---- what is copied ---- */

/* A page can be pinned only once, so runs that share a page are joined. */
static void add_span(struct device_snapshot *snapshot_copy, size_t first, size_t end)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct span span = { first / page * page, (end + page - 1) / page * page };
	struct span *last =
		snapshot_copy->span_count ? &snapshot_copy->spans[snapshot_copy->span_count - 1] : NULL;
	if (last && span.first <= last->end)
		last->end = span.end > last->end ? span.end : last->end;
	else
		snapshot_copy->spans[snapshot_copy->span_count++] = span;
}

static int find_spans(struct device_snapshot *snapshot_copy, const struct layout *layout)
{
	size_t most = 0;
	for (int s = 0; s < SNAPSHOT_STATES; s++)
		most += layout->kept_count[s];
	snapshot_copy->spans = calloc(most + 1, sizeof *snapshot_copy->spans);
	if (!snapshot_copy->spans)
		return -1;
	for (size_t s = 0; s < SNAPSHOT_STATES; s++)
		for (size_t i = 0; i < layout->kept_count[s]; i++)
			add_span(snapshot_copy,
				s * layout_arena(layout) + layout->kept[s][i].first * sizeof(float),
				s * layout_arena(layout) + layout->kept[s][i].end * sizeof(float));
	return 0;
}

static int add_piece(struct device_snapshot *snapshot_copy, struct piece piece)
{
	if (snapshot_copy->piece_count == snapshot_copy->room) {
		size_t room = snapshot_copy->room ? 2 * snapshot_copy->room : 64;
		struct piece *more = realloc(snapshot_copy->pieces, room * sizeof *more);
		if (!more)
			return -1;
		snapshot_copy->pieces = more;
		snapshot_copy->room = room;
	}
	snapshot_copy->pieces[snapshot_copy->piece_count++] = piece;
	return 0;
}

/* Adds the pieces of elements [first, end) of an arena, which on the device begin at `from`. */
static int add_run(struct device_snapshot *snapshot_copy, size_t arena, size_t first, size_t end,
	const float *from, size_t most)
{
	size_t bytes = first < end ? (end - first) * sizeof(float) : 0;
	for (size_t at = 0; at < bytes; at += most)
		if (add_piece(snapshot_copy,
				(struct piece) { arena + first * sizeof(float) + at, (const char *)from + at,
					bytes - at < most ? bytes - at : most })
			< 0)
			return -1;
	return 0;
}

/* Adds the pieces of a run of moments that are kept here; on the device shards lie one after the
 * other. */
static int add_moments(struct device_snapshot *snapshot_copy, size_t arena,
	const struct zero_shard *run, const float *from, size_t most)
{
	const struct state *state = snapshot_copy->state;
	for (size_t i = 0, at = 0; i < state->own_count; i++) {
		const struct zero_shard *own = &state->own[i],
								kept = zero_shard_cut(own, run->first, run->end);
		if (add_run(snapshot_copy, arena, kept.first, kept.end,
				from + at + (kept.first - own->first), most)
			< 0)
			return -1;
		at += own->end - own->first;
	}
	return 0;
}

static int find_pieces(struct device_snapshot *snapshot_copy, const struct layout *layout)
{
	const struct adamw_state *device = &snapshot_copy->state->on_device;
	size_t whole = layout_own_bytes(layout) / PIECES_MOST / sizeof(float) * sizeof(float);
	size_t most = !snapshot_copy->pinned ? RING_BYTES : whole > PIECE_LEAST ? whole : PIECE_LEAST;
	const float *const arenas[SNAPSHOT_STATES] = { device->weights, device->m, device->v };
	for (size_t s = 0; s < SNAPSHOT_STATES; s++)
		for (size_t i = 0; i < layout->kept_count[s]; i++) {
			const struct zero_shard *run = &layout->kept[s][i];
			int rc = s == SNAPSHOT_MASTER
				? add_run(snapshot_copy, s * layout_arena(layout), run->first, run->end,
					arenas[s] + run->first, most)
				: add_moments(snapshot_copy, s * layout_arena(layout), run, arenas[s], most);
			if (rc < 0)
				return -1;
		}
	return 0;
}

/* ---- memory ---- */

static char *place_of(const struct device_snapshot *snapshot_copy, size_t number)
{
	return (char *)snapshot_copy->memory.base[number / snapshot_copy->span_count]
		+ snapshot_copy->spans[number % snapshot_copy->span_count].first;
}

static size_t span_bytes(const struct device_snapshot *snapshot_copy, size_t number)
{
	const struct span *span = &snapshot_copy->spans[number % snapshot_copy->span_count];
	return span->end - span->first;
}

static void unpin(struct device_snapshot *snapshot_copy)
{
	while (snapshot_copy->pinned > 0)
		copy_stream_of(snapshot_copy)
			->unpin(snapshot_copy->device, place_of(snapshot_copy, --snapshot_copy->pinned));
}

/* Pins all spans of all buffers, or none. */
static int pin(struct device_snapshot *snapshot_copy, struct err *err)
{
	size_t count = snapshot_copy->span_count * (size_t)snapshot_copy->memory.buffers;
	for (; snapshot_copy->pinned < count; snapshot_copy->pinned++)
		if (copy_stream_of(snapshot_copy)
				->pin(snapshot_copy->device, place_of(snapshot_copy, snapshot_copy->pinned),
					span_bytes(snapshot_copy, snapshot_copy->pinned), err)
			< 0) {
			unpin(snapshot_copy);
			return -1;
		}
	return 0;
}

static int make_ring(struct device_snapshot *snapshot_copy, struct err *err)
{
	for (int i = 0; i < RING; i++)
		if (!(snapshot_copy->ring[i] =
					copy_stream_of(snapshot_copy)->alloc(snapshot_copy->device, RING_BYTES, err)))
			return -1;
	return 0;
}

static int make_memory(struct device_snapshot *snapshot_copy, const struct layout *layout,
	int buffers, struct err *err)
{
	struct err why;
	if (snapshot_memory_create(&snapshot_copy->memory, buffers, layout_bytes(layout), err) < 0)
		return -1;
	if (find_spans(snapshot_copy, layout) < 0)
		return err_set(err, "checkpoint: out of memory for the places of the state");
	for (size_t i = 0; i < snapshot_copy->span_count * (size_t)buffers; i++)
		prefault(place_of(snapshot_copy, i), span_bytes(snapshot_copy, i));
	if (pin(snapshot_copy, &why) == 0)
		return 0;
	log_warn("checkpoint: the memory of the snapshots can't be pinned: %s; the update after a "
			 "save waits until all is copied through %zu MB that are: where the limit of locked "
			 "memory is the reason (ulimit -l), raise it",
		why.text, RING * RING_BYTES >> 20);
	return make_ring(snapshot_copy, err);
}

struct device_snapshot *device_snapshot_start(struct state *state, const struct layout *layout,
	int buffers, struct err *err)
{
	struct device_snapshot *snapshot_copy = calloc(1, sizeof *snapshot_copy);
	if (!snapshot_copy) {
		err_set(err, "checkpoint: out of memory");
		return NULL;
	}
	snapshot_copy->device = state->ops->device;
	snapshot_copy->state = state;
	pthread_mutex_init(&snapshot_copy->lock, NULL);
	pthread_cond_init(&snapshot_copy->changed, NULL);
	int rc = make_memory(snapshot_copy, layout, buffers, err);
	if (rc == 0 && find_pieces(snapshot_copy, layout) < 0)
		rc = err_set(err, "checkpoint: out of memory for the pieces of the state");
	if (rc == 0)
		return snapshot_copy;
	device_snapshot_stop(snapshot_copy);
	return NULL;
}

void device_snapshot_stop(struct device_snapshot *snapshot_copy)
{
	if (!snapshot_copy)
		return;
	snapshot_copy->state->before = NULL;
	unpin(snapshot_copy);
	for (int i = 0; i < RING; i++)
		if (snapshot_copy->ring[i])
			copy_stream_of(snapshot_copy)->release(snapshot_copy->device, snapshot_copy->ring[i]);
	snapshot_memory_release(&snapshot_copy->memory);
	free(snapshot_copy->spans);
	free(snapshot_copy->pieces);
	pthread_cond_destroy(&snapshot_copy->changed);
	pthread_mutex_destroy(&snapshot_copy->lock);
	free(snapshot_copy);
}

const struct snapshot_memory *device_snapshot_memory(const struct device_snapshot *snapshot_copy)
{
	return &snapshot_copy->memory;
}

bool device_snapshot_is_pinned(const struct device_snapshot *snapshot_copy)
{
	return snapshot_copy->pinned > 0;
}

/* ---- a snapshot ---- */

/* The state's `before`: called when an update is about to write. */
static void wait_transfer(void *arg)
{
	struct device_snapshot *snapshot_copy = arg;
	double began = clock_now();
	struct err err;
	int rc = snapshot_copy->pinned
		? copy_stream_of(snapshot_copy)
			  ->wait_transfer(snapshot_copy->device, snapshot_copy->buffer, &err)
		: 0;
	pthread_mutex_lock(&snapshot_copy->lock);
	while (snapshot_copy->copying)
		pthread_cond_wait(&snapshot_copy->changed, &snapshot_copy->lock);
	if (rc < 0) {
		snapshot_copy->overtaken = true;
		snapshot_copy->err = err;
	}
	snapshot_copy->waited[snapshot_copy->buffer] = rc > 0;
	snapshot_copy->stalls[snapshot_copy->buffer] = clock_now() - began;
	pthread_mutex_unlock(&snapshot_copy->lock);
}

int device_snapshot_begin(struct device_snapshot *snapshot_copy, int buffer, struct err *err)
{
	const struct copy_stream *copy_stream = copy_stream_of(snapshot_copy);
	struct device *device = snapshot_copy->device;
	int rc = copy_stream->begin(device, buffer, err);
	for (size_t i = 0; rc == 0 && snapshot_copy->pinned && i < snapshot_copy->piece_count; i++) {
		const struct piece *piece = &snapshot_copy->pieces[i];
		rc = copy_stream->copy(device, (char *)snapshot_copy->memory.base[buffer] + piece->at,
			piece->device, piece->bytes, err);
	}
	if (rc == 0 && snapshot_copy->pinned)
		rc = copy_stream->end(device, buffer, err);
	if (rc < 0)
		return -1;
	pthread_mutex_lock(&snapshot_copy->lock);
	snapshot_copy->buffer = buffer;
	snapshot_copy->copying = !snapshot_copy->pinned;
	snapshot_copy->overtaken = false;
	snapshot_copy->stalls[buffer] = 0;
	snapshot_copy->waited[buffer] = false;
	pthread_mutex_unlock(&snapshot_copy->lock);
	snapshot_copy->state->before = wait_transfer;
	snapshot_copy->state->before_arg = snapshot_copy;
	return 0;
}

static int wait_for(struct device_snapshot *snapshot_copy, int transfer, struct deadline deadline,
	struct err *err)
{
	int rc;
	while ((rc = copy_stream_of(snapshot_copy)->done(snapshot_copy->device, transfer, err)) == 0)
		if (!deadline_sleep(deadline, POLL))
			return err_fail(err, EXIT_LOST,
				"checkpoint: the state can't be had from the device: its copies don't come to an "
				"end");
	return rc < 0 ? -1 : 0;
}

/* Moves a piece out of the ring to its place, which makes the ring's place free again. */
static int move_piece(struct device_snapshot *snapshot_copy, size_t i, struct deadline deadline,
	struct err *err)
{
	const struct piece *piece = &snapshot_copy->pieces[i];
	if (wait_for(snapshot_copy, SNAPSHOT_BUFFERS + (int)(i % RING), deadline, err) < 0)
		return -1;
	memcpy((char *)snapshot_copy->memory.base[snapshot_copy->buffer] + piece->at,
		snapshot_copy->ring[i % RING], piece->bytes);
	return 0;
}

static int copy_by_ring(struct device_snapshot *snapshot_copy, struct deadline deadline,
	struct err *err)
{
	const struct copy_stream *copy_stream = copy_stream_of(snapshot_copy);
	for (size_t i = 0; i < snapshot_copy->piece_count + RING; i++) {
		if (i >= RING && i - RING < snapshot_copy->piece_count
			&& move_piece(snapshot_copy, i - RING, deadline, err) < 0)
			return -1;
		if (i < snapshot_copy->piece_count
			&& (copy_stream->copy(snapshot_copy->device, snapshot_copy->ring[i % RING],
					snapshot_copy->pieces[i].device, snapshot_copy->pieces[i].bytes, err)
					< 0
				|| copy_stream->end(snapshot_copy->device, SNAPSHOT_BUFFERS + (int)(i % RING), err)
					< 0))
			return -1;
	}
	return 0;
}

int device_snapshot_finish(struct device_snapshot *snapshot_copy, double patience, struct err *err)
{
	struct deadline deadline = deadline_in(patience);
	int rc = snapshot_copy->pinned ? wait_for(snapshot_copy, snapshot_copy->buffer, deadline, err)
								   : copy_by_ring(snapshot_copy, deadline, err);
	pthread_mutex_lock(&snapshot_copy->lock);
	if (rc == 0 && snapshot_copy->overtaken) {
		*err = snapshot_copy->err;
		rc = -1;
	}
	snapshot_copy->copying = false;
	pthread_cond_broadcast(&snapshot_copy->changed);
	pthread_mutex_unlock(&snapshot_copy->lock);
	return rc;
}

double device_snapshot_stall(struct device_snapshot *snapshot_copy, int buffer)
{
	pthread_mutex_lock(&snapshot_copy->lock);
	double stall = snapshot_copy->stalls[buffer];
	bool waited = snapshot_copy->waited[buffer];
	pthread_mutex_unlock(&snapshot_copy->lock);
	return stall
		+ (waited ? copy_stream_of(snapshot_copy)->waited(snapshot_copy->device, buffer) : 0);
}

double device_snapshot_seconds(struct device_snapshot *snapshot_copy, int buffer)
{
	return snapshot_copy->pinned
		? copy_stream_of(snapshot_copy)->took(snapshot_copy->device, buffer)
		: 0;
}
