/* SPDX-License-Identifier: Apache-2.0 */
/* Two hash tables: from bytes to tokens, and from pairs of tokens to merges. Pieces are short as a
 * rule, and the same ones come again: so a small cache answers most questions, short pieces are
 * searched for their first merge from end to end, and only long ones get a heap. */
#include "config.h"

#include "text/bpe.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/hash.h"

#define NO_RANK INT32_MAX
#define SHORT_PIECE 48 /* bytes of a piece that needs no heap */
#define CACHE_SLOTS 65536
#define CACHE_BYTES 24 /* of a piece that is kept in the cache */
#define CACHE_TOKENS 6

struct token {
	char *bytes; /* NULL: no token has this id */
	size_t size;
};

struct merge {
	uint64_t pair; /* left << 32 | right; UINT64_MAX: free */
	int32_t rank, id;
};

struct bpe {
	bool whole;
	struct token *tokens;
	int32_t count, room;
	int32_t *slots; /* ids by the hash of their bytes; -1: free */
	size_t slot_count, used;
	struct merge *merges;
	size_t merge_slots;
	int32_t merge_count;
	int32_t bytes[256];
};

/* ---- tokens ---- */

struct bpe *bpe_create(bool whole)
{
	struct bpe *bpe = calloc(1, sizeof *bpe);
	if (bpe)
		bpe->whole = whole;
	return bpe;
}

void bpe_destroy(struct bpe *bpe)
{
	if (!bpe)
		return;
	for (int32_t id = 0; id < bpe->count; id++)
		free(bpe->tokens[id].bytes);
	free(bpe->tokens);
	free(bpe->slots);
	free(bpe->merges);
	free(bpe);
}

static size_t slot_of(const struct bpe *bpe, const void *bytes, size_t size)
{
	size_t at = (size_t)hash_bytes(bytes, size).low & (bpe->slot_count - 1);
	for (; bpe->slots[at] >= 0; at = (at + 1) & (bpe->slot_count - 1)) {
		const struct token *token = &bpe->tokens[bpe->slots[at]];
		if (token->size == size && memcmp(token->bytes, bytes, size) == 0)
			break;
	}
	return at;
}

int32_t bpe_find(const struct bpe *bpe, const void *bytes, size_t size)
{
	return bpe->slot_count ? bpe->slots[slot_of(bpe, bytes, size)] : -1;
}

/* Keeps at least half of the slots free. */
static int grow_slots(struct bpe *bpe)
{
	if (2 * (bpe->used + 1) <= bpe->slot_count)
		return 0;
	const size_t count = bpe->slot_count ? 2 * bpe->slot_count : 1024;
	int32_t *slots = malloc(count * sizeof *slots);
	if (!slots)
		return -1;
	memset(slots, 0xff, count * sizeof *slots);
	free(bpe->slots);
	bpe->slots = slots;
	bpe->slot_count = count;
	for (int32_t id = 0; id < bpe->count; id++)
		if (bpe->tokens[id].bytes)
			slots[slot_of(bpe, bpe->tokens[id].bytes, bpe->tokens[id].size)] = id;
	return 0;
}

static int grow_tokens(struct bpe *bpe, int32_t id)
{
	if (id >= bpe->room) {
		const int32_t room = id < INT32_MAX / 2 ? (id + 1) * 2 : INT32_MAX;
		struct token *tokens = realloc(bpe->tokens, (size_t)room * sizeof *tokens);
		if (!tokens)
			return -1;
		bpe->tokens = tokens;
		bpe->room = room;
	}
	for (; bpe->count <= id; bpe->count++)
		bpe->tokens[bpe->count] = (struct token) { 0 };
	return 0;
}

int bpe_add_token(struct bpe *bpe, int32_t id, const void *bytes, size_t size, struct err *err)
{
	if (grow_tokens(bpe, id) < 0 || grow_slots(bpe) < 0)
		return err_set(err, "tokenizer: out of memory");
	const size_t slot = slot_of(bpe, bytes, size);
	if (bpe->tokens[id].bytes || bpe->slots[slot] >= 0)
		return err_fail(err, EXIT_DATA, "tokenizer: token %" PRId32 " is there twice", id);
	char *copy = malloc(size + 1);
	if (!copy)
		return err_set(err, "tokenizer: out of memory");
	memcpy(copy, bytes, size);
	copy[size] = '\0';
	bpe->tokens[id] = (struct token) { copy, size };
	bpe->slots[slot] = id;
	bpe->used++;
	return 0;
}

const char *bpe_bytes(const struct bpe *bpe, int32_t id, size_t *size)
{
	if (id < 0 || id >= bpe->count || !bpe->tokens[id].bytes)
		return NULL;
	*size = bpe->tokens[id].size;
	return bpe->tokens[id].bytes;
}

int32_t bpe_count(const struct bpe *bpe)
{
	return bpe->count;
}

int bpe_check(struct bpe *bpe, struct err *err)
{
	for (int byte = 0; byte < 256; byte++) {
		const unsigned char one = (unsigned char)byte;
		bpe->bytes[byte] = bpe_find(bpe, &one, 1);
		if (bpe->bytes[byte] < 0)
			return err_fail(err, EXIT_DATA,
				"tokenizer: no token is the byte 0x%02x alone: the vocabulary is not byte-level",
				(unsigned)byte);
	}
	return 0;
}

/* ---- merges ---- */

static uint64_t pair_of(int32_t left, int32_t right)
{
	return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

/* The finalizer of MurmurHash3 spreads the bits. */
static uint64_t spread(uint64_t key)
{
	key = (key ^ key >> 33) * 0xff51afd7ed558ccdull;
	key = (key ^ key >> 33) * 0xc4ceb9fe1a85ec53ull;
	return key ^ key >> 33;
}

static struct merge *merge_slot(const struct bpe *bpe, uint64_t pair)
{
	size_t at = (size_t)spread(pair) & (bpe->merge_slots - 1);
	while (bpe->merges[at].pair != UINT64_MAX && bpe->merges[at].pair != pair)
		at = (at + 1) & (bpe->merge_slots - 1);
	return &bpe->merges[at];
}

static int grow_merges(struct bpe *bpe)
{
	if (2 * ((size_t)bpe->merge_count + 1) <= bpe->merge_slots)
		return 0;
	struct bpe larger = *bpe;
	larger.merge_slots = bpe->merge_slots ? 2 * bpe->merge_slots : 1024;
	larger.merges = malloc(larger.merge_slots * sizeof *larger.merges);
	if (!larger.merges)
		return -1;
	memset(larger.merges, 0xff, larger.merge_slots * sizeof *larger.merges);
	for (size_t i = 0; i < bpe->merge_slots; i++)
		if (bpe->merges[i].pair != UINT64_MAX)
			*merge_slot(&larger, bpe->merges[i].pair) = bpe->merges[i];
	free(bpe->merges);
	*bpe = larger;
	return 0;
}

int bpe_add_merge(struct bpe *bpe, int32_t left, int32_t right, struct err *err)
{
	const struct token *a = &bpe->tokens[left], *b = &bpe->tokens[right];
	if (grow_merges(bpe) < 0)
		return err_set(err, "tokenizer: out of memory");
	char *bytes = malloc(a->size + b->size + 1);
	if (!bytes)
		return err_set(err, "tokenizer: out of memory");
	memcpy(bytes, a->bytes, a->size);
	memcpy(bytes + a->size, b->bytes, b->size);
	const int32_t id = bpe_find(bpe, bytes, a->size + b->size);
	free(bytes);
	if (id < 0)
		return err_fail(err, EXIT_DATA,
			"tokenizer: merge %" PRId32 " makes a token that the vocabulary lacks",
			bpe->merge_count);
	struct merge *slot = merge_slot(bpe, pair_of(left, right));
	if (slot->pair != UINT64_MAX)
		return err_fail(err, EXIT_DATA, "tokenizer: merge %" PRId32 " is there twice",
			bpe->merge_count);
	*slot = (struct merge) { pair_of(left, right), bpe->merge_count++, id };
	return 0;
}

/* ---- a piece ---- */

struct candidate {
	int32_t rank;
	uint32_t at; /* of the left one */
	int32_t left, right, id;
};

struct cached {
	unsigned char size, count; /* size 0: free */
	unsigned char bytes[CACHE_BYTES];
	int32_t ids[CACHE_TOKENS];
};

struct bpe_work {
	struct cached *cache;
	int32_t *ids;
	uint32_t *next, *before; /* long pieces: neighbours of each token; UINT32_MAX: none */
	size_t room;
	struct candidate *heap;
	size_t heap_count, heap_room;
};

struct bpe_work *bpe_work_create(void)
{
	struct bpe_work *work = calloc(1, sizeof *work);
	if (work)
		work->cache = calloc(CACHE_SLOTS, sizeof *work->cache);
	if (work && !work->cache) {
		free(work);
		return NULL;
	}
	return work;
}

void bpe_work_destroy(struct bpe_work *work)
{
	if (!work)
		return;
	free(work->cache);
	free(work->ids);
	free(work->next);
	free(work->before);
	free(work->heap);
	free(work);
}

static int make_room(struct bpe_work *work, size_t size)
{
	if (size <= work->room)
		return 0;
	free(work->ids);
	free(work->next);
	free(work->before);
	work->ids = malloc(size * sizeof *work->ids);
	work->next = malloc(size * sizeof *work->next);
	work->before = malloc(size * sizeof *work->before);
	work->room = work->ids && work->next && work->before ? size : 0;
	return work->room ? 0 : -1;
}

static const struct merge *merge_of(const struct bpe *bpe, int32_t left, int32_t right)
{
	if (!bpe->merge_slots)
		return NULL;
	const struct merge *slot = merge_slot(bpe, pair_of(left, right));
	return slot->pair == UINT64_MAX ? NULL : slot;
}

/* Searches for the first merge, makes it, and begins again. */
static size_t merge_short(const struct bpe *bpe, int32_t *ids, size_t count)
{
	int32_t ranks[SHORT_PIECE], merged[SHORT_PIECE];
	for (size_t i = 0; i + 1 < count; i++) {
		const struct merge *merge = merge_of(bpe, ids[i], ids[i + 1]);
		ranks[i] = merge ? merge->rank : NO_RANK;
		merged[i] = merge ? merge->id : -1;
	}
	while (count > 1) {
		size_t best = 0;
		for (size_t i = 1; i + 1 < count; i++)
			best = ranks[i] < ranks[best] ? i : best;
		if (ranks[best] == NO_RANK)
			break;
		ids[best] = merged[best];
		count--;
		for (size_t i = best + 1; i < count; i++) {
			ids[i] = ids[i + 1];
			ranks[i - 1] = ranks[i];
			merged[i - 1] = merged[i];
		}
		for (size_t i = best ? best - 1 : 0; i <= best && i + 1 < count; i++) {
			const struct merge *merge = merge_of(bpe, ids[i], ids[i + 1]);
			ranks[i] = merge ? merge->rank : NO_RANK;
			merged[i] = merge ? merge->id : -1;
		}
	}
	return count;
}

static bool is_before(const struct candidate *a, const struct candidate *b)
{
	return a->rank < b->rank || (a->rank == b->rank && a->at < b->at);
}

static int push(const struct bpe *bpe, struct bpe_work *work, uint32_t at)
{
	const uint32_t next = work->next[at];
	const struct merge *merge =
		next == UINT32_MAX ? NULL : merge_of(bpe, work->ids[at], work->ids[next]);
	if (!merge)
		return 0;
	if (work->heap_count == work->heap_room) {
		const size_t room = work->heap_room ? 2 * work->heap_room : 256;
		struct candidate *heap = realloc(work->heap, room * sizeof *heap);
		if (!heap)
			return -1;
		work->heap = heap;
		work->heap_room = room;
	}
	const struct candidate one = { merge->rank, at, work->ids[at], work->ids[next], merge->id };
	size_t place = work->heap_count++;
	for (; place > 0 && is_before(&one, &work->heap[(place - 1) / 2]); place = (place - 1) / 2)
		work->heap[place] = work->heap[(place - 1) / 2];
	work->heap[place] = one;
	return 0;
}

static struct candidate pop(struct bpe_work *work)
{
	const struct candidate top = work->heap[0], last = work->heap[--work->heap_count];
	size_t place = 0;
	for (size_t child; (child = 2 * place + 1) < work->heap_count; place = child) {
		child +=
			child + 1 < work->heap_count && is_before(&work->heap[child + 1], &work->heap[child]);
		if (!is_before(&work->heap[child], &last))
			break;
		work->heap[place] = work->heap[child];
	}
	work->heap[place] = last;
	return top;
}

/* Makes a merge, unless one of its two tokens has been merged meanwhile. */
static int apply(const struct bpe *bpe, struct bpe_work *work, const struct candidate *one)
{
	const uint32_t next = work->next[one->at];
	if (work->ids[one->at] != one->left || next == UINT32_MAX || work->ids[next] != one->right)
		return 0;
	work->ids[one->at] = one->id;
	work->ids[next] = -1;
	work->next[one->at] = work->next[next];
	if (work->next[next] != UINT32_MAX)
		work->before[work->next[next]] = one->at;
	if (push(bpe, work, one->at) < 0)
		return -1;
	return work->before[one->at] == UINT32_MAX ? 0 : push(bpe, work, work->before[one->at]);
}

static size_t merge_long(const struct bpe *bpe, struct bpe_work *work, size_t count)
{
	size_t left = 0;
	work->heap_count = 0;
	for (size_t i = 0; i < count; i++) {
		work->next[i] = i + 1 < count ? (uint32_t)(i + 1) : UINT32_MAX;
		work->before[i] = i ? (uint32_t)(i - 1) : UINT32_MAX;
	}
	for (uint32_t i = 0; i + 1 < count; i++)
		if (push(bpe, work, i) < 0)
			return 0;
	while (work->heap_count > 0) {
		const struct candidate one = pop(work);
		if (apply(bpe, work, &one) < 0)
			return 0;
	}
	for (uint32_t at = 0; at != UINT32_MAX; at = work->next[at])
		work->ids[left++] = work->ids[at];
	return left;
}

static void remember(struct cached *cached, const unsigned char *piece, size_t size,
	const int32_t *ids, size_t count)
{
	if (!cached || count > CACHE_TOKENS)
		return;
	cached->size = (unsigned char)size;
	cached->count = (unsigned char)count;
	memcpy(cached->bytes, piece, size);
	memcpy(cached->ids, ids, count * sizeof *ids);
}

size_t bpe_encode(const struct bpe *bpe, struct bpe_work *work, const unsigned char *piece,
	size_t size, const int32_t **ids)
{
	struct cached *cached = NULL;
	if (size <= CACHE_BYTES) {
		cached = &work->cache[hash_bytes(piece, size).low % CACHE_SLOTS];
		*ids = cached->ids;
		if (cached->size == size && memcmp(cached->bytes, piece, size) == 0)
			return cached->count;
	}
	if (size > UINT32_MAX || make_room(work, size) < 0)
		return 0;
	*ids = work->ids;
	size_t count = size;
	const int32_t whole = bpe->whole ? bpe_find(bpe, piece, size) : -1;
	for (size_t i = 0; i < size; i++)
		work->ids[i] = bpe->bytes[piece[i]];
	if (whole >= 0) {
		work->ids[0] = whole;
		count = 1;
	} else {
		count =
			size <= SHORT_PIECE ? merge_short(bpe, work->ids, size) : merge_long(bpe, work, size);
	}
	remember(cached, piece, size, work->ids, count);
	return count;
}
