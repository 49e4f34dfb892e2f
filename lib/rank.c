/* SPDX-License-Identifier: Apache-2.0 */
/* Identity and rendezvous. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/alone.h"
#include "common/descriptors.h"
#include "common/log.h"
#include "launch/spot_watch.h"
#include "lib/muster_private.h"

#define NODE_KEY "muster-node"
#define USER_KEY "u.%s" /* a prefix, so that the program's keys never clash with ours */
#define KEY_MAX 60

static int meet(struct muster *muster, struct err *err)
{
	struct ident *ident = &muster->ident;
	if (ident_discover(ident, err) < 0)
		return -1;
	alone_warn(ident);
	if (spot_watch_begin(ident, NULL, err) < 0)
		return -1;
	if (ident->world_size > 1)
		log_set_tag("rank %d on %s", ident->rank, ident->node);
	muster->flight = flight_create(ident, err);
	if (!muster->flight)
		return -1;
	muster->phase = FLIGHT_START;
	muster->thread = pthread_self();
	muster->nodes = calloc((size_t)ident->world_size, sizeof *muster->nodes);
	if (!muster->nodes)
		return err_set(err, "rendezvous: no memory for %d ranks", ident->world_size);
	muster->rdzv = rdzv_open(ident, NULL, muster->timeout, err);
	if (!muster->rdzv
		|| rdzv_put(muster->rdzv, NODE_KEY, ident->node, strlen(ident->node), err) < 0)
		return -1;
	return rdzv_fence(muster->rdzv, 0, err);
}

int muster_open(struct muster **out, double timeout)
{
	struct err err;
	muster_log_begin();
	descriptors_close_in_children();
	if (muster_check_given(out, "the place for the struct muster", &err) < 0)
		return muster_failed(&err);
	*out = NULL;
	if (muster_check_timeout(timeout, &err) < 0)
		return muster_failed(&err);
	struct muster *muster = calloc(1, sizeof *muster);
	if (!muster) {
		err_set(&err, "rendezvous: no memory");
		return muster_failed(&err);
	}
	muster->timeout = muster_or(timeout, MUSTER_SECONDS);
	if (meet(muster, &err) < 0) {
		muster_close(muster, err.status != EXIT_LOST);
		return muster_failed(&err);
	}
	*out = muster;
	return MUSTER_OK;
}

void muster_close(struct muster *muster, int orderly)
{
	if (!muster)
		return;
	spot_watch_end(false);
	muster_end_flight(muster, orderly);
	step_word_close(muster->word);
	rdzv_close(muster->rdzv, orderly);
	for (int rank = 0; muster->nodes && rank < muster->ident.world_size; rank++)
		free(muster->nodes[rank]);
	free(muster->nodes);
	free(muster);
}

int muster_rank(const struct muster *muster)
{
	return muster ? muster->ident.rank : -1;
}
int muster_world_size(const struct muster *muster)
{
	return muster ? muster->ident.world_size : -1;
}
int muster_local_rank(const struct muster *muster)
{
	return muster ? muster->ident.local_rank : -1;
}
int muster_local_world_size(const struct muster *muster)
{
	return muster ? muster->ident.local_world_size : -1;
}
int muster_node_rank(const struct muster *muster)
{
	return muster ? muster->ident.node_rank : -1;
}
int muster_node_count(const struct muster *muster)
{
	return muster ? muster->ident.node_count : -1;
}
int muster_attempt(const struct muster *muster)
{
	return muster ? muster->ident.attempt : -1;
}
uint32_t muster_job(const struct muster *muster)
{
	return muster ? muster->ident.job : 0;
}

const char *muster_node(struct muster *muster, int rank)
{
	struct err err;
	void *name;
	size_t size;
	bool there = muster && rank >= 0 && rank < muster->ident.world_size;
	if (there && muster->nodes[rank])
		return muster->nodes[rank];
	if (muster_check(muster, 0, &err) < 0
		/* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): muster_check refuses NULL */
		|| rdzv_get(muster->rdzv, rank, NODE_KEY, &name, &size, 0, &err) < 0) {
		muster_failed(&err);
		return NULL;
	}
	return muster->nodes[rank] = name;
}

static int full_key(const char *key, char full[KEY_MAX + 4], struct err *err)
{
	size_t length = key ? strlen(key) : 0;
	if (length == 0 || length > KEY_MAX)
		return err_fail(err, EXIT_USAGE,
			"rendezvous: couldn't use the key '%.80s': it has 1 to %d characters", key ? key : "",
			KEY_MAX);
	snprintf(full, KEY_MAX + 4, USER_KEY, key);
	return 0;
}

int muster_put(struct muster *muster, const char *key, const void *value, size_t size)
{
	struct err err;
	char full[KEY_MAX + 4];
	if (muster_check(muster, 0, &err) < 0 || full_key(key, full, &err) < 0
		|| (size > 0 && muster_check_given(value, "a value that is not empty", &err) < 0)
		|| rdzv_put(muster->rdzv, full, size ? value : "", size, &err) < 0)
		return muster_failed(&err);
	return MUSTER_OK;
}

int muster_fence(struct muster *muster, double timeout)
{
	struct err err;
	if (muster_check(muster, timeout, &err) < 0 || rdzv_fence(muster->rdzv, timeout, &err) < 0)
		return muster_failed(&err);
	return MUSTER_OK;
}

int muster_get(struct muster *muster, int rank, const char *key, void **value, size_t *size)
{
	struct err err;
	char full[KEY_MAX + 4];
	if (value)
		*value = NULL;
	if (muster_check(muster, 0, &err) < 0
		|| muster_check_given(value, "the place for a value", &err) < 0
		|| muster_check_given(size, "the place for its size", &err) < 0
		|| full_key(key, full, &err) < 0
		|| rdzv_get(muster->rdzv, rank, full, value, size, 0, &err) < 0)
		return muster_failed(&err);
	return MUSTER_OK;
}

void muster_free(void *memory)
{
	free(memory);
}

void muster_abort(struct muster *muster, int status, const char *why)
{
	if (muster)
		rdzv_abort(muster->rdzv, status, why ? why : "");
}
