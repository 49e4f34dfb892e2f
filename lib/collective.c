/* SPDX-License-Identifier: Apache-2.0 */
/* Small collectives over the rendezvous. All of them use the same sequence of keys, so a failure
 * that a rank reports (muster_agree) reaches the others in whichever of these calls they are. */
#include <stdio.h>
#include <string.h>

#include "launch/rank_status.h"
#include "lib/muster_private.h"

/* The number in a rank's status tells in which call it is; from BROADCAST on, also from which
 * root. */
enum { AGREE, ALLGATHER, END, BROADCAST };

struct call_name {
	char text[60];
};

static struct call_name call_name(int number)
{
	static const char *const names
		[] = { [AGREE] = "muster_agree", [ALLGATHER] = "muster_allgather", [END] = "muster_end" };
	struct call_name name;
	if (number < BROADCAST)
		snprintf(name.text, sizeof name.text, "%s", names[number < 0 ? AGREE : number]);
	else
		snprintf(name.text, sizeof name.text, "muster_broadcast from rank %d", number - BROADCAST);
	return name;
}

static int check_calls(const struct rank_status *words, int count, struct err *err)
{
	for (int rank = 1; rank < count; rank++)
		if (words[rank].number != words[0].number)
			return err_fail(err, EXIT_USAGE,
				"rendezvous: couldn't go on: %s is in %s, %s in %s: all ranks have to make the "
				"same calls in the same order",
				rank_status_name(words, rank).text, call_name(words[rank].number).text,
				rank_status_name(words, 0).text, call_name(words[0].number).text);
	return 0;
}

/* The statuses of all ranks, whichever call each is in; NULL if some did not come. */
static struct rank_status *exchange(struct muster *muster, const struct rank_status_own *own,
	double timeout, struct err *err)
{
	char key[32];
	snprintf(key, sizeof key, "all.%u", muster->meetings++);
	struct rank_status *words =
		rank_status_exchange(muster->rdzv, &muster->ident, key, own, timeout, err);
	muster->met = words;
	return words;
}

/* The statuses of all ranks in this call; NULL if one has failed or is in another call. */
static struct rank_status *meet(struct muster *muster, const struct rank_status_own *own,
	double timeout, struct err *err)
{
	int count = muster->ident.world_size;
	struct rank_status *words = exchange(muster, own, timeout, err);
	if (words && rank_statuses_check(words, count, err) == 0 && check_calls(words, count, err) == 0)
		return words;
	rank_statuses_free(words, count);
	return NULL;
}

static int check_size(const struct rank_status *words, int rank, size_t size, struct err *err)
{
	if (words[rank].size == size)
		return 0;
	return err_fail(err, EXIT_USAGE,
		"rendezvous: couldn't take the %zu bytes of %s: this rank expects %zu", words[rank].size,
		rank_status_name(words, rank).text, size);
}

static int check_memory(const void *memory, size_t size, struct err *err)
{
	if (size > RANK_STATUS_DATA)
		return err_fail(err, EXIT_USAGE,
			"rendezvous: couldn't share %zu bytes: at most %d, and more by NCCL or MPI", size,
			RANK_STATUS_DATA);
	return memory || size == 0
		? 0
		: err_fail(err, EXIT_USAGE, "rendezvous: couldn't share %zu bytes at NULL", size);
}

/* This rank's status in the call `number`. A rank that asks to be requeued may give no reason ("")
 * if another rank does. */
static struct rank_status_own own_word(int number, int status, const char *why, struct err *failure)
{
	err_fail(failure, (enum exit_status)status, "%s", why ? why : muster_error());
	if (!failure->text[0] && !(why && status == MUSTER_REQUEUE))
		err_fail(failure, (enum exit_status)status, "it gave up with status %d", status);
	return (struct rank_status_own) { .failure = status ? failure : NULL, .number = number };
}

int muster_agree(struct muster *muster, int status, const char *why, double timeout)
{
	struct err err, failure;
	if (muster_check(muster, timeout, &err) < 0)
		return muster_failed(&err);
	const struct rank_status_own own = own_word(AGREE, status, why, &failure);
	struct rank_status *words = meet(muster, &own, timeout, &err);
	if (!words)
		return muster_failed(&err);
	rank_statuses_free(words, muster->ident.world_size);
	return MUSTER_OK;
}

int muster_agree_on_end(struct muster *muster, int status, const char *why, double timeout,
	bool *together)
{
	struct err err, failure;
	int count = muster->ident.world_size;
	const struct rank_status_own own = own_word(END, status, why, &failure);
	struct rank_status *words = exchange(muster, &own, timeout, &err);
	*together = words;
	for (int rank = 0; rank < count && *together; rank++)
		*together = words[rank].number == END;
	bool good = words && rank_statuses_check(words, count, &err) == 0
		&& check_calls(words, count, &err) == 0;
	rank_statuses_free(words, count);
	return good ? MUSTER_OK : muster_failed(&err);
}

int muster_allgather(struct muster *muster, const void *mine, void *all, size_t size,
	double timeout)
{
	struct err err;
	int rc = 0;
	if (muster_check(muster, timeout, &err) < 0 || check_memory(mine, size, &err) < 0
		|| check_memory(all, size, &err) < 0)
		return muster_failed(&err);
	const struct rank_status_own own = { .number = ALLGATHER, .data = mine, .size = size };
	int count = muster->ident.world_size;
	struct rank_status *words = meet(muster, &own, timeout, &err);
	if (!words)
		return muster_failed(&err);
	for (int rank = 0; rank < count && rc == 0; rank++)
		rc = check_size(words, rank, size, &err);
	for (int rank = 0; rank < count && rc == 0 && size; rank++)
		memcpy((char *)all + (size_t)rank * size, words[rank].data, size);
	rank_statuses_free(words, count);
	return rc < 0 ? muster_failed(&err) : MUSTER_OK;
}

int muster_broadcast(struct muster *muster, int root, void *data, size_t size, double timeout)
{
	struct err err;
	if (muster_check(muster, timeout, &err) < 0 || check_memory(data, size, &err) < 0)
		return muster_failed(&err);
	const struct ident *ident = &muster->ident;
	if (root < 0 || root >= ident->world_size) {
		err_fail(&err, EXIT_USAGE, "rendezvous: couldn't broadcast from rank %d: the world has %d",
			root, ident->world_size);
		return muster_failed(&err);
	}
	const struct rank_status_own own = { .number = BROADCAST + root,
		.data = data,
		.size = ident->rank == root ? size : 0 };
	struct rank_status *words = meet(muster, &own, timeout, &err);
	if (!words)
		return muster_failed(&err);
	int rc = check_size(words, root, size, &err);
	if (rc == 0 && size)
		memcpy(data, words[root].data, size);
	rank_statuses_free(words, ident->world_size);
	return rc < 0 ? muster_failed(&err) : MUSTER_OK;
}
