/* SPDX-License-Identifier: Apache-2.0 */
/* The public names of launch/step_word.h. */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launch/rank_address.h"
#include "launch/step_word.h"
#include "lib/muster_private.h"

#define KEY_SIZE 32

static const char *key_of(const struct muster *muster, char key[KEY_SIZE])
{
	snprintf(key, KEY_SIZE, "muster-word-%d", muster->words_begun);
	return key;
}

/* Listens, and publishes where. */
static int prepare(struct muster *muster, struct err *err)
{
	char address[RANK_ADDRESS_SIZE], key[KEY_SIZE];
	if (rank_address(&muster->ident, address, err) < 0)
		return -1;
	muster->word = step_word_open(muster->ident.rank, muster->ident.world_size, address, err);
	if (!muster->word)
		return -1;
	const char *place = step_word_place(muster->word);
	return rdzv_put(muster->rdzv, key_of(muster, key), place, strlen(place), err);
}

static int begin(struct muster *muster, double timeout, struct err *err)
{
	const int above = step_word_parent(muster->ident.rank);
	const double seconds = muster_or(timeout, muster->timeout);
	char key[KEY_SIZE];
	void *place = NULL;
	size_t size;
	if (above >= 0
		&& rdzv_get(muster->rdzv, above, key_of(muster, key), &place, &size, seconds, err) < 0)
		return -1;
	int rc = step_word_begin(muster->word, place, err);
	free(place);
	if (rc == 0 && !step_word_connected(muster->word, deadline_in(seconds)))
		rc = err_fail(err, EXIT_LOST, "word: couldn't connect to rank %d (on %s) within %g s",
			above, muster_node(muster, above), seconds);
	return rc;
}

int muster_word_begin(struct muster *muster, double timeout)
{
	struct err err;
	if (muster_check(muster, timeout, &err) < 0)
		return muster_failed(&err);
	if (muster->word) {
		err_fail(&err, EXIT_USAGE, "word: it has begun already");
		return muster_failed(&err);
	}
	int status = prepare(muster, &err) < 0 ? muster_failed(&err) : MUSTER_OK;
	status = muster_agree(muster, status, NULL, timeout);
	if (status == MUSTER_OK) {
		status = begin(muster, timeout, &err) < 0 ? muster_failed(&err) : MUSTER_OK;
		/* Once all are connected, none can end without the others hearing of it. */
		status = muster_agree(muster, status, NULL, timeout);
	}
	muster->words_begun++;
	if (status != MUSTER_OK) {
		step_word_close(muster->word);
		muster->word = NULL;
	}
	return status;
}

/* Sets the error of a wait in which the rank has left, or has not come. */
static int fail_wait(struct muster *muster, bool left, const char *what, int rank, double seconds)
{
	struct err err;
	const char *node = muster_node(muster, rank);
	if (left)
		err_fail(&err, EXIT_LOST, "word: rank %d (on %s) has left before %s", rank,
			node ? node : "?", what);
	else
		err_fail(&err, EXIT_LOST,
			"word: no %s from rank %d (on %s) within %g s: look at what it does there", what, rank,
			node ? node : "?", seconds);
	return muster_failed(&err);
}

/* Waits for the words of the step that was said `back` + 1 words ago, and tells what they come to.
 * Tells nothing where there was no such step. */
static int hear(struct muster *muster, uint64_t back, uint64_t *all, int *who, double timeout)
{
	struct step_word_sum sum = { .rank = -1 };
	int rank;
	double seconds = muster_or(timeout, muster->timeout);
	if (muster->words <= back)
		return MUSTER_OK;
	const uint64_t step = muster->words - 1 - back;
	enum step_word_end end = step_word_wait(muster->word, step, deadline_in(seconds), &sum, &rank);
	/* NOLINTBEGIN(clang-analyzer-core.NullDereference): check() refuses NULL */
	*all = sum.flags;
	*who = sum.rank;
	/* NOLINTEND(clang-analyzer-core.NullDereference) */
	char what[40];
	snprintf(what, sizeof what, "word %" PRIu64, step + 1);
	return end == STEP_WORD_HEARD ? MUSTER_OK
								  : fail_wait(muster, end == STEP_WORD_LOST, what, rank, seconds);
}

/* The checks of both calls; sets *all and *rank to what no words come to. */
static int check(struct muster *muster, uint64_t *all, int *rank, double timeout, struct err *err)
{
	if (all)
		*all = 0;
	if (rank)
		*rank = -1;
	if (muster_check(muster, timeout, err) < 0
		|| muster_check_given(all, "the place for the flags", err) < 0
		|| muster_check_given(rank, "the place for the rank", err) < 0)
		return -1;
	return muster->word ? 0 : err_fail(err, EXIT_USAGE, "word: call muster_word_begin first");
}

int muster_word(struct muster *muster, uint64_t flags, uint64_t *all, int *rank, double timeout)
{
	struct err err;
	if (check(muster, all, rank, timeout, &err) < 0)
		return muster_failed(&err);
	enum flight_phase before = muster_stand(muster, FLIGHT_WORD);
	step_word_say(muster->word, flags);
	muster->words++;
	int status = hear(muster, 1, all, rank, timeout);
	if (status == MUSTER_OK)
		muster_stand(muster, before);
	return status;
}

int muster_word_end(struct muster *muster, uint64_t *all, int *rank, double timeout)
{
	struct err err;
	if (check(muster, all, rank, timeout, &err) < 0)
		return muster_failed(&err);
	int status = hear(muster, 0, all, rank, timeout);
	step_word_close(muster->word);
	muster->word = NULL;
	muster->words = 0;
	return status;
}

/* ---- gatherings ---- */

/* Puts all pieces one after the other; frees them. NULL when out of memory. */
static void *join(struct step_word_data **pieces, int count, size_t *sizes)
{
	size_t total = 0, at = 0;
	for (int rank = 0; rank < count; rank++)
		total += sizes[rank] = (size_t)pieces[rank]->size;
	char *whole = malloc(total + 1);
	for (int rank = 0; rank < count; rank++) {
		if (whole)
			memcpy(whole + at, pieces[rank]->bytes, sizes[rank]);
		at += sizes[rank];
		free(pieces[rank]);
	}
	free(pieces);
	return whole;
}

static int check_gather(struct muster *muster, const void *mine, size_t size, void **all,
	const size_t *sizes, double timeout, struct err *err)
{
	if (all)
		*all = NULL;
	if (muster_check(muster, timeout, err) < 0
		|| muster_check_given(all, "the place for what is gathered", err) < 0
		|| (muster->ident.rank == 0
			&& muster_check_given(sizes, "the place for the sizes", err) < 0)
		|| (size > 0 && muster_check_given(mine, "what this rank gives", err) < 0))
		return -1;
	if (!muster->word)
		return err_fail(err, EXIT_USAGE, "word: call muster_word_begin first");
	return size <= STEP_WORD_DATA_MOST
		? 0
		: err_fail(err, EXIT_USAGE, "word: couldn't gather %zu bytes of a rank: at most %d MiB",
			size, (int)(STEP_WORD_DATA_MOST >> 20));
}

int muster_word_gather(struct muster *muster, const void *mine, size_t size, void **all,
	size_t *sizes, double timeout)
{
	struct err err;
	struct step_word_data **pieces;
	int rank;
	if (check_gather(muster, mine, size, all, sizes, timeout, &err) < 0
		|| step_word_give(muster->word, mine, size, &err) < 0)
		return muster_failed(&err);
	const double seconds = muster_or(timeout, muster->timeout);
	enum step_word_end end = step_word_gathered(muster->word, deadline_in(seconds), &pieces, &rank);
	if (end != STEP_WORD_HEARD)
		return fail_wait(muster, end == STEP_WORD_LOST, "data", rank, seconds);
	if (!pieces)
		return MUSTER_OK;
	*all = join(pieces, muster->ident.world_size, sizes);
	if (*all)
		return MUSTER_OK;
	err_set(&err, "word: out of memory");
	return muster_failed(&err);
}
