/* SPDX-License-Identifier: Apache-2.0 */
/* An all-gather of whether each rank failed, and where one did, another of all statuses, from which
 * all derive the same error. */
#include "trainer/comm/status_exchange.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/log.h"

struct slot {
	struct rank_status word;
	char text[sizeof((struct err *)0)->text];
};

/* How many of the first `count` ranks failed with the same words as this one. */
static int count_same(const struct rank_status *words, int count, int rank)
{
	int same = 0;
	for (int i = 0; i < count; i++)
		same += words[i].status && strcmp(words[i].data, words[rank].data) == 0;
	return same;
}

/* Writes the failure of a rank, and of all others with the same words, as one line. */
static void describe(const struct rank_status *words, int size, int rank, struct err *err)
{
	char others[30] = "";
	const int same = count_same(words, size, rank) - 1;
	if (same)
		snprintf(others, sizeof others, " and %d other%s", same, same > 1 ? "s" : "");
	err_fail(err, (enum exit_status)words[rank].status, "%s", words[rank].data);
	if (size > 1)
		err_prefix(err, "rank %d on %s%s", rank, words[rank].node, others);
}

int status_share(const struct rank_status *words, int size, bool speaks, struct err *err)
{
	const int worst = rank_statuses_worst(words, size, false);
	if (worst < 0)
		return 0;
	for (int rank = 0; speaks && rank < size; rank++)
		if (words[rank].status && strcmp(words[rank].data, words[worst].data) != 0
			&& count_same(words, rank, rank) == 0) {
			describe(words, size, rank, err);
			log_error("%s", err->text);
		}
	describe(words, size, worst, err);
	return ERR_SHARED;
}

static int exchange_words(struct comm *comm, const char *stage, const char *node, int rc,
	struct err *err)
{
	const int size = comm_size(comm);
	struct slot mine = { .word.status = rc < 0 ? (int)err->status : 0 };
	AUTO_FREE struct slot *slots = calloc((size_t)size, sizeof *slots);
	AUTO_FREE struct rank_status *words = calloc((size_t)size, sizeof *words);
	if (!slots || !words)
		return err_set(err, "%s: out of memory", stage);
	snprintf(mine.word.node, sizeof mine.word.node, "%s", node);
	if (rc < 0)
		memcpy(mine.text, err->text, sizeof mine.text);
	if (comm_wait(comm, comm_allgather(comm, stage, &mine, slots, sizeof mine), err) < 0)
		return -1;
	for (int rank = 0; rank < size; rank++) {
		words[rank] = slots[rank].word;
		words[rank].data = slots[rank].text;
		words[rank].size = strlen(slots[rank].text);
	}
	return status_share(words, size, comm_rank(comm) == 0, err);
}

/* In a large world the words of all ranks are megabytes on each of them, and rarely said. */
int status_exchange(struct comm *comm, const char *stage, const char *node, int rc, struct err *err)
{
	const size_t size = (size_t)comm_size(comm);
	const bool mine = rc < 0;
	AUTO_FREE bool *failed = calloc(size, sizeof *failed);
	if (!failed)
		return err_set(err, "%s: out of memory", stage);
	struct err why;
	if (comm_wait(comm, comm_allgather(comm, stage, &mine, failed, sizeof mine), &why) < 0) {
		*err = why;
		return -1;
	}
	return memchr(failed, true, size) ? exchange_words(comm, stage, node, rc, err) : 0;
}
