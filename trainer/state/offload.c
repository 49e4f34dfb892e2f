/* SPDX-License-Identifier: Apache-2.0 */
/* A slot is a memory file with the arenas one behind the other, of which only the pages that are saved are there. */
#include "config.h"
#include "trainer/state/offload.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "trainer/state/populate.h"

#define PIECE_LEAST ((size_t)32 << 20) /* bytes of one copy: what else is copied out in a step waits for no more than that */
#define PIECES_MOST 512                /* but no more copies than a stream takes without making the host wait */
#define RING 3                         /* pieces that wait to be moved, where the slots aren't pinned */
#define RING_BYTES ((size_t)16 << 20)
#define POLL 0.0002                    /* seconds */

_Static_assert(SNAPSHOT_SLOTS + RING <= OPS_TURNS, "each slot and each piece of the ring is a turn");

/* Bytes of a slot, whole pages. */
struct span {
	size_t first, end;
};

/* One copy. */
struct piece {
	size_t at; /* byte of a slot */
	const char *device;
	size_t bytes;
};

struct offload {
	struct ops *ops;
	struct state *state;
	struct snapshot_memory memory;
	struct span *spans;
	struct piece *pieces;
	size_t span_count, piece_count, room; /* the last: pieces that there is memory for */
	size_t pinned;           /* spans of slots, slot by slot */
	char *ring[RING];        /* NULL where the slots are pinned */

	pthread_mutex_t lock;    /* of what follows */
	pthread_cond_t changed;
	int slot;                /* begun last */
	bool copying;            /* the pieces of the ring are on their way */
	bool overtaken;          /* the update can't have waited: `err` says why */
	struct err err;
	double stalls[SNAPSHOT_SLOTS]; /* of the host */
	bool held[SNAPSHOT_SLOTS];     /* the device was made to wait, too */
};

static const struct ops_side *side_of(const struct offload *offload)
{
	return offload->ops->side;
}

/* ---- what is copied ---- */

/* Pages are pinned once, so runs that share one are joined. */
static void add_span(struct offload *offload, size_t first, size_t end)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct span span = { first / page * page, (end + page - 1) / page * page };
	struct span *last = offload->span_count ? &offload->spans[offload->span_count - 1] : NULL;
	if (last && span.first <= last->end)
		last->end = span.end > last->end ? span.end : last->end;
	else
		offload->spans[offload->span_count++] = span;
}

static int find_spans(struct offload *offload, const struct layout *layout)
{
	size_t most = 0;
	for (int s = 0; s < SNAPSHOT_STATES; s++)
		most += layout->kept_count[s];
	offload->spans = calloc(most + 1, sizeof *offload->spans);
	if (!offload->spans)
		return -1;
	for (size_t s = 0; s < SNAPSHOT_STATES; s++)
		for (size_t i = 0; i < layout->kept_count[s]; i++)
			add_span(offload, s * layout_arena(layout) + layout->kept[s][i].first * sizeof(float),
				s * layout_arena(layout) + layout->kept[s][i].end * sizeof(float));
	return 0;
}

static int add_piece(struct offload *offload, struct piece piece)
{
	if (offload->piece_count == offload->room) {
		size_t room = offload->room ? 2 * offload->room : 64;
		struct piece *more = realloc(offload->pieces, room * sizeof *more);
		if (!more)
			return -1;
		offload->pieces = more;
		offload->room = room;
	}
	offload->pieces[offload->piece_count++] = piece;
	return 0;
}

/* Elements [first, end) of an arena, which on the device begin at `from`. */
static int add_run(struct offload *offload, size_t arena, size_t first, size_t end, const float *from, size_t most)
{
	size_t bytes = first < end ? (end - first) * sizeof(float) : 0;
	for (size_t at = 0; at < bytes; at += most)
		if (add_piece(offload, (struct piece){ arena + first * sizeof(float) + at, (const char *)from + at,
			bytes - at < most ? bytes - at : most }) < 0)
			return -1;
	return 0;
}

/* What of a run of moments is kept here: on the device one shard stands behind the other. */
static int add_moments(struct offload *offload, size_t arena, const struct zero_shard *run, const float *from, size_t most)
{
	const struct state *state = offload->state;
	size_t at = 0;
	if (!state->sharded)
		return add_run(offload, arena, run->first, run->end, from + run->first, most);
	for (size_t i = 0; i < state->own_count; i++) {
		const struct zero_shard *own = &state->own[i];
		size_t first = run->first > own->first ? run->first : own->first, end = run->end < own->end ? run->end : own->end;
		if (first < end && add_run(offload, arena, first, end, from + at + (first - own->first), most) < 0)
			return -1;
		at += own->end - own->first;
	}
	return 0;
}

static int find_pieces(struct offload *offload, const struct layout *layout)
{
	const struct adamw_state *device = &offload->state->device;
	size_t whole = layout_own_bytes(layout) / PIECES_MOST / sizeof(float) * sizeof(float);
	size_t most = !offload->pinned ? RING_BYTES : whole > PIECE_LEAST ? whole : PIECE_LEAST;
	const float *const arenas[SNAPSHOT_STATES] = { device->weights, device->m, device->v };
	for (size_t s = 0; s < SNAPSHOT_STATES; s++)
		for (size_t i = 0; i < layout->kept_count[s]; i++) {
			const struct zero_shard *run = &layout->kept[s][i];
			int rc = s == SNAPSHOT_MASTER
				? add_run(offload, s * layout_arena(layout), run->first, run->end, arenas[s] + run->first, most)
				: add_moments(offload, s * layout_arena(layout), run, arenas[s], most);
			if (rc < 0)
				return -1;
		}
	return 0;
}

/* ---- memory ---- */

static char *place_of(const struct offload *offload, size_t number)
{
	return (char *)offload->memory.base[number / offload->span_count] + offload->spans[number % offload->span_count].first;
}

static size_t span_bytes(const struct offload *offload, size_t number)
{
	const struct span *span = &offload->spans[number % offload->span_count];
	return span->end - span->first;
}

static void unpin(struct offload *offload)
{
	while (offload->pinned > 0)
		side_of(offload)->unpin(offload->ops, place_of(offload, --offload->pinned));
}

/* All or nothing. */
static int pin(struct offload *offload, struct err *err)
{
	size_t count = offload->span_count * (size_t)offload->memory.slots;
	for (; offload->pinned < count; offload->pinned++)
		if (side_of(offload)->pin(offload->ops, place_of(offload, offload->pinned), span_bytes(offload, offload->pinned), err) < 0) {
			unpin(offload);
			return -1;
		}
	return 0;
}

static int make_ring(struct offload *offload, struct err *err)
{
	for (int i = 0; i < RING; i++)
		if (!(offload->ring[i] = side_of(offload)->alloc(offload->ops, RING_BYTES, err)))
			return -1;
	return 0;
}

static int make_memory(struct offload *offload, const struct layout *layout, int slots, struct err *err)
{
	struct err why;
	if (snapshot_memory_create(&offload->memory, slots, layout_bytes(layout), err) < 0)
		return -1;
	if (find_spans(offload, layout) < 0)
		return err_set(err, "checkpoint: out of memory for the places of the state");
	for (size_t i = 0; i < offload->span_count * (size_t)slots; i++)
		populate(place_of(offload, i), span_bytes(offload, i));
	if (pin(offload, &why) == 0)
		return 0;
	log_warn("checkpoint: the memory of the snapshots can't be pinned: %s; the update behind a save waits until all is copied through "
		"%zu MB that are: where the limit of locked memory is the reason (ulimit -l), raise it", why.text,
		RING * RING_BYTES >> 20);
	return make_ring(offload, err);
}

struct offload *offload_start(struct state *state, const struct layout *layout, int slots, struct err *err)
{
	struct offload *offload = calloc(1, sizeof *offload);
	if (!offload) {
		err_set(err, "checkpoint: out of memory");
		return NULL;
	}
	offload->ops = state->ops;
	offload->state = state;
	pthread_mutex_init(&offload->lock, NULL);
	pthread_cond_init(&offload->changed, NULL);
	int rc = make_memory(offload, layout, slots, err);
	if (rc == 0 && find_pieces(offload, layout) < 0)
		rc = err_set(err, "checkpoint: out of memory for the pieces of the state");
	if (rc == 0)
		return offload;
	offload_stop(offload);
	return NULL;
}

void offload_stop(struct offload *offload)
{
	if (!offload)
		return;
	offload->state->before = NULL;
	unpin(offload);
	for (int i = 0; i < RING; i++)
		if (offload->ring[i])
			side_of(offload)->release(offload->ops, offload->ring[i]);
	snapshot_memory_release(&offload->memory);
	free(offload->spans);
	free(offload->pieces);
	pthread_cond_destroy(&offload->changed);
	pthread_mutex_destroy(&offload->lock);
	free(offload);
}

const struct snapshot_memory *offload_memory(const struct offload *offload)
{
	return &offload->memory;
}

bool offload_is_pinned(const struct offload *offload)
{
	return offload->pinned > 0;
}

/* ---- a snapshot ---- */

/* state->before: the update is about to write. */
static void hold(void *arg)
{
	struct offload *offload = arg;
	double began = clock_now();
	struct err err;
	int rc = offload->pinned ? side_of(offload)->hold(offload->ops, offload->slot, &err) : 0;
	pthread_mutex_lock(&offload->lock);
	while (offload->copying)
		pthread_cond_wait(&offload->changed, &offload->lock);
	if (rc < 0) {
		offload->overtaken = true;
		offload->err = err;
	}
	offload->held[offload->slot] = rc > 0;
	offload->stalls[offload->slot] = clock_now() - began;
	pthread_mutex_unlock(&offload->lock);
}

int offload_begin(struct offload *offload, int slot, struct err *err)
{
	const struct ops_side *side = side_of(offload);
	struct ops *ops = offload->ops;
	int rc = side->begin(ops, slot, err);
	for (size_t i = 0; rc == 0 && offload->pinned && i < offload->piece_count; i++) {
		const struct piece *piece = &offload->pieces[i];
		rc = side->copy(ops, (char *)offload->memory.base[slot] + piece->at, piece->device, piece->bytes, err);
	}
	if (rc == 0 && offload->pinned)
		rc = side->end(ops, slot, err);
	if (rc < 0)
		return -1;
	pthread_mutex_lock(&offload->lock);
	offload->slot = slot;
	offload->copying = !offload->pinned;
	offload->overtaken = false;
	offload->stalls[slot] = 0;
	offload->held[slot] = false;
	pthread_mutex_unlock(&offload->lock);
	offload->state->before = hold;
	offload->state->before_arg = offload;
	return 0;
}

static int wait_for(struct offload *offload, int turn, struct deadline deadline, struct err *err)
{
	int rc;
	while ((rc = side_of(offload)->done(offload->ops, turn, err)) == 0)
		if (!deadline_sleep(deadline, POLL))
			return err_fail(err, EXIT_LOST, "checkpoint: the state can't be had from the device: its copies don't come to an end");
	return rc < 0 ? -1 : 0;
}

/* A piece of the ring is empty once what it held has been moved to its place. */
static int move_piece(struct offload *offload, size_t i, struct deadline deadline, struct err *err)
{
	const struct piece *piece = &offload->pieces[i];
	if (wait_for(offload, SNAPSHOT_SLOTS + (int)(i % RING), deadline, err) < 0)
		return -1;
	memcpy((char *)offload->memory.base[offload->slot] + piece->at, offload->ring[i % RING], piece->bytes);
	return 0;
}

static int copy_by_ring(struct offload *offload, struct deadline deadline, struct err *err)
{
	const struct ops_side *side = side_of(offload);
	for (size_t i = 0; i < offload->piece_count + RING; i++) {
		if (i >= RING && i - RING < offload->piece_count && move_piece(offload, i - RING, deadline, err) < 0)
			return -1;
		if (i < offload->piece_count && (side->copy(offload->ops, offload->ring[i % RING], offload->pieces[i].device,
			offload->pieces[i].bytes, err) < 0 || side->end(offload->ops, SNAPSHOT_SLOTS + (int)(i % RING), err) < 0))
			return -1;
	}
	return 0;
}

int offload_finish(struct offload *offload, double patience, struct err *err)
{
	struct deadline deadline = deadline_in(patience);
	int rc = offload->pinned ? wait_for(offload, offload->slot, deadline, err) : copy_by_ring(offload, deadline, err);
	pthread_mutex_lock(&offload->lock);
	if (rc == 0 && offload->overtaken) {
		*err = offload->err;
		rc = -1;
	}
	offload->copying = false;
	pthread_cond_broadcast(&offload->changed);
	pthread_mutex_unlock(&offload->lock);
	return rc;
}

double offload_stall(struct offload *offload, int slot)
{
	pthread_mutex_lock(&offload->lock);
	double stall = offload->stalls[slot];
	bool held = offload->held[slot];
	pthread_mutex_unlock(&offload->lock);
	return stall + (held ? side_of(offload)->held(offload->ops, slot) : 0);
}

double offload_seconds(struct offload *offload, int slot)
{
	return offload->pinned ? side_of(offload)->took(offload->ops, slot) : 0;
}
