/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's word is a line "STATUS VERSION NODE", then rank 0's id or the text of a failure. */
#include "launch/nccl_exchange.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"

#define HEAD_SIZE 320 /* of the line */
#define WORD_SIZE (HEAD_SIZE + sizeof((struct err *)0)->text)

struct word {
	int status, version;
	char node[256];
	char rest[sizeof((struct err *)0)->text]; /* with a NUL behind */
	size_t size;                              /* of rest */
};

/* Who published a word, as messages name him: "rank 3 (on n2)". */
struct speaker {
	char name[300];
};

static struct speaker speaker_of(int rank, const struct word *word)
{
	struct speaker speaker;
	snprintf(speaker.name, sizeof speaker.name, "rank %d (on %s)", rank, word->node);
	return speaker;
}

static int put_word(struct rdzv *rdzv, const struct ident *ident, const char *key, const struct nccl_offer *offer,
	struct err *err)
{
	char word[WORD_SIZE];
	const char *node = ident->node[0] ? ident->node : "?";
	int head = snprintf(word, HEAD_SIZE, "%d %d %.255s\n", offer->failure ? (int)offer->failure->status : 0, offer->version, node);
	size_t size = offer->failure ? strlen(offer->failure->text) : offer->id ? NCCL_EXCHANGE_ID : 0;
	memcpy(word + head, offer->failure ? offer->failure->text : size ? offer->id : "", size);
	return rdzv_put(rdzv, key, word, (size_t)head + size, err);
}

static int parse_word(struct word *word, int rank, const char *text, size_t size, struct err *err)
{
	char head[HEAD_SIZE];
	const char *newline = memchr(text, '\n', size < HEAD_SIZE ? size : HEAD_SIZE - 1);
	size_t length = newline ? (size_t)(newline - text) : 0;
	memcpy(head, text, length);
	head[length] = '\0';
	word->size = newline ? size - length - 1 : sizeof word->rest;
	if (word->size >= sizeof word->rest || sscanf(head, "%d %d %255s", &word->status, &word->version, word->node) != 3)
		return err_set(err, "nccl: couldn't understand what rank %d published: all ranks need the same build of Muster", rank);
	memcpy(word->rest, newline + 1, word->size);
	word->rest[word->size] = '\0';
	return 0;
}

static int get_word(struct rdzv *rdzv, int rank, const char *key, double timeout, struct word *word, struct err *err)
{
	AUTO_FREE void *text = NULL;
	size_t size;
	if (rdzv_get(rdzv, rank, key, &text, &size, timeout, err) < 0)
		return -1;
	return parse_word(word, rank, text, size, err);
}

static int get_words(struct rdzv *rdzv, int count, const char *key, double timeout, struct word *words, struct err *err)
{
	for (int rank = 0; rank < count; rank++)
		if (get_word(rdzv, rank, key, timeout, &words[rank], err) < 0)
			return -1;
	return 0;
}

/* The rank whose failure is told by all: one with a reason of its own before one that only lost its peers. -1: none. */
static int find_failed(const struct word *words, int count)
{
	int first = -1;
	for (int rank = 0; rank < count; rank++) {
		if (words[rank].status && words[rank].status != EXIT_LOST)
			return rank;
		if (words[rank].status && first < 0)
			first = rank;
	}
	return first;
}

static int check_failures(const struct word *words, int count, struct err *err)
{
	int rank = find_failed(words, count);
	if (rank < 0)
		return 0;
	return err_fail(err, (enum exit_status)words[rank].status, "%s: %s", speaker_of(rank, &words[rank]).name, words[rank].rest);
}

/* 2.28.9 is 22809; before 2.9 it would have been 2809. */
static void version_text(int version, char *out, size_t size)
{
	int major = version >= 10000 ? version / 10000 : version / 1000;
	int minor = version >= 10000 ? version / 100 % 100 : version / 100 % 10;
	snprintf(out, size, "%d.%d.%d", major, minor, version % 100);
}

static int check_versions(const struct word *words, int count, struct err *err)
{
	char theirs[40], first[40];
	int rank = 0;
	while (rank < count && words[rank].version == words[0].version)
		rank++;
	if (rank == count)
		return 0;
	version_text(words[rank].version, theirs, sizeof theirs);
	version_text(words[0].version, first, sizeof first);
	return err_fail(err, EXIT_USAGE, "nccl: %s has NCCL %s, %s has %s: give all nodes the same (module, container, "
		"LD_LIBRARY_PATH)", speaker_of(rank, &words[rank]).name, theirs, speaker_of(0, &words[0]).name, first);
}

static void key_name(char *key, size_t size, const char *stage, int number)
{
	snprintf(key, size, "%s.%d", stage, number);
}

static int take_id(const struct word *first, void *id, struct err *err)
{
	if (first->size != NCCL_EXCHANGE_ID)
		return err_set(err, "nccl: rank 0 published an id of %zu bytes, not %d: all ranks need the same build of Muster",
			first->size, NCCL_EXCHANGE_ID);
	memcpy(id, first->rest, NCCL_EXCHANGE_ID);
	return 0;
}

int nccl_exchange(struct rdzv *rdzv, const struct ident *ident, int number, const struct nccl_offer *offer, double timeout,
	void *id, struct err *err)
{
	char key[48];
	int count = ident->world_size;
	AUTO_FREE struct word *words = calloc((size_t)count, sizeof *words);
	if (!words)
		return err_set(err, "nccl: out of memory");
	key_name(key, sizeof key, "nccl-id", number);
	if (put_word(rdzv, ident, key, offer, err) < 0 || rdzv_fence(rdzv, timeout, err) < 0
		|| get_words(rdzv, count, key, timeout, words, err) < 0)
		return -1;
	if (check_failures(words, count, err) < 0 || check_versions(words, count, err) < 0)
		return -1;
	return take_id(&words[0], id, err);
}

int nccl_settle(struct rdzv *rdzv, const struct ident *ident, int number, const struct err *failure, double timeout,
	struct err *err)
{
	char key[48];
	int count = ident->world_size;
	const struct nccl_offer outcome = { .failure = failure };
	AUTO_FREE struct word *words = calloc((size_t)count, sizeof *words);
	if (!words)
		return err_set(err, "nccl: out of memory");
	key_name(key, sizeof key, "nccl-up", number);
	if (put_word(rdzv, ident, key, &outcome, err) < 0)
		return -1;
	if (rdzv_fence(rdzv, timeout, err) < 0)
		return failure ? err_prefix(err, "%.400s", failure->text) : -1;
	if (get_words(rdzv, count, key, timeout, words, err) < 0)
		return -1;
	return check_failures(words, count, err);
}
