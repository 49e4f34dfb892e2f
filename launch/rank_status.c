/* SPDX-License-Identifier: Apache-2.0 */
/* A status is published as a line "STATUS NUMBER NODE", followed by the data or the text of the
 * failure. */
#include "launch/rank_status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"

#define HEAD_SIZE 320 /* of the line */

struct rank_name rank_status_name(const struct rank_status *words, int rank)
{
	struct rank_name name;
	snprintf(name.text, sizeof name.text, "rank %d (on %s)", rank, words[rank].node);
	return name;
}

static int put_word(struct rdzv *rdzv, const struct ident *ident, const char *key,
	const struct rank_status_own *own, struct err *err)
{
	const void *data = own->failure ? own->failure->text : own->data;
	size_t size = own->failure ? strlen(own->failure->text) : own->size;
	if (size > RANK_STATUS_DATA)
		return err_fail(err, EXIT_USAGE, "rendezvous: couldn't share %zu bytes: at most %d", size,
			RANK_STATUS_DATA);
	AUTO_FREE char *word = malloc(HEAD_SIZE + size);
	if (!word)
		return err_set(err, "rendezvous: out of memory");
	int head =
		snprintf(word, HEAD_SIZE, "%d %d %.255s\n", own->failure ? (int)own->failure->status : 0,
			own->number, ident->node[0] ? ident->node : "?");
	if (size)
		memcpy(word + head, data, size);
	return rdzv_put_passing(rdzv, key, word, (size_t)head + size, err);
}

static int parse_word(struct rank_status *word, int rank, size_t size, struct err *err)
{
	char head[HEAD_SIZE];
	const char *text = word->memory,
			   *newline = memchr(text, '\n', size < HEAD_SIZE ? size : HEAD_SIZE - 1);
	size_t length = newline ? (size_t)(newline - text) : 0;
	memcpy(head, text, length);
	head[length] = '\0';
	if (sscanf(head, "%d %d %255s", &word->status, &word->number, word->node) != 3)
		return err_set(err,
			"rendezvous: couldn't understand what rank %d published: all ranks need the same build "
			"of Muster",
			rank);
	word->data = newline + 1;
	word->size = size - length - 1;
	return 0;
}

static int get_words(struct rdzv *rdzv, int count, const char *key, double timeout, bool may_lack,
	struct rank_status *words, struct err *err)
{
	size_t size;
	for (int rank = 0; rank < count; rank++)
		if (rdzv_get_passing(rdzv, rank, key, &words[rank].memory, &size, timeout, err) < 0)
			return may_lack ? 0 : -1;
		else if (parse_word(&words[rank], rank, size, err) < 0)
			return -1;
	return 0;
}

struct rank_status *rank_status_exchange(struct rdzv *rdzv, const struct ident *ident,
	const char *key, const struct rank_status_own *own, double timeout, struct err *err)
{
	struct rank_status *words = calloc((size_t)ident->world_size, sizeof *words);
	int rc =
		words ? put_word(rdzv, ident, key, own, err) : err_set(err, "rendezvous: out of memory");
	if (rc == 0 && (rc = rdzv_fence(rdzv, timeout, err)) < 0 && own->failure)
		err_prefix(err, "%.400s", own->failure->text); /* what this rank knows comes first */
	if (rc == 0
		&& get_words(rdzv, ident->world_size, key, own->patience > 0 ? own->patience : timeout,
			   own->patience > 0, words, err)
			== 0)
		return words;
	rank_statuses_free(words, ident->world_size);
	return NULL;
}

/* Whether all ranks have heard of this failure in an earlier exchange: then the text already names
 * its rank. */
static bool is_named(const char *text)
{
	int rank, end = 0;
	return sscanf(text, "rank %d (on %*255[^)]): %n", &rank, &end) == 1 && end > 0;
}

/* The order in which failures are reported: causes before consequences. */
static int weight(const struct rank_status *word)
{
	if (word->status == EXIT_REQUEUE)
		return word->size ? 2 : 1;
	return word->status == EXIT_LOST ? 3 : 4;
}

int rank_statuses_worst(const struct rank_status *words, int count, bool causes_first)
{
	int worst = -1;
	for (int rank = 0; rank < count; rank++)
		if (words[rank].status != EXIT_OK
			&& (worst < 0 || (causes_first && weight(&words[rank]) > weight(&words[worst]))))
			worst = rank;
	return worst;
}

int rank_statuses_check(const struct rank_status *words, int count, struct err *err)
{
	const int worst = rank_statuses_worst(words, count, true);
	if (worst < 0)
		return 0;
	const char *why = words[worst].size ? words[worst].data : "it stopped before its end";
	err_fail(err, (enum exit_status)words[worst].status, "%s", why);
	if (count == 1 || is_named(why))
		return -1;
	return err_prefix(err, "%s", rank_status_name(words, worst).text);
}

void rank_statuses_free(struct rank_status *words, int count)
{
	for (int rank = 0; words && rank < count; rank++)
		free(words[rank].memory);
	free(words);
}
