/* SPDX-License-Identifier: Apache-2.0 */
/* Reads batches ahead in a thread of its own, so that a step does not wait for pages that are not
 * in memory yet. */
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/clock.h"
#include "common/thread.h"
#include "trainer/data/dataset.h"
#include "trainer/data/dataset_private.h"

/* READ: how long storage may not answer before the run gives up (a requeue brings it back). STOP:
 * how long a stop waits before it leaves the thread behind. */
#define READ_SECONDS 300
#define STOP_SECONDS 5

struct slot {
	uint64_t *samples;
	struct batch *batch;
	bool failed;
	struct err err; /* of this batch; returned in its turn */
};

/* Places of the ring count up for ever; place p is in slot p mod slot_count. taken ≤ read ≤ pushed
 * ≤ taken + depth, and one more slot keeps the batch returned last. */
struct prefetch {
	const struct dataset *dataset;
	int samples, vocabulary, depth, slot_count;
	struct slot *slots;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed; /* uses CLOCK_MONOTONIC */
	uint64_t pushed, read, taken;
	bool stop, ended;
};

static void *read_ahead(void *arg)
{
	struct prefetch *prefetch = arg;
	pthread_mutex_lock(&prefetch->lock);
	for (;;) {
		while (!prefetch->stop && prefetch->read == prefetch->pushed)
			pthread_cond_wait(&prefetch->changed, &prefetch->lock);
		if (prefetch->stop)
			break;
		struct slot *slot = &prefetch->slots[prefetch->read % (uint64_t)prefetch->slot_count];
		pthread_mutex_unlock(&prefetch->lock);
		slot->failed = dataset_read(prefetch->dataset, slot->samples, prefetch->samples,
						   prefetch->vocabulary, slot->batch, &slot->err)
			< 0;
		pthread_mutex_lock(&prefetch->lock);
		prefetch->read++;
		pthread_cond_broadcast(&prefetch->changed);
	}
	prefetch->ended = true;
	pthread_cond_broadcast(&prefetch->changed);
	pthread_mutex_unlock(&prefetch->lock);
	return NULL;
}

static void destroy(struct prefetch *prefetch)
{
	for (int i = 0; prefetch->slots && i < prefetch->slot_count; i++) {
		free(prefetch->slots[i].samples);
		batch_free(prefetch->slots[i].batch);
	}
	free(prefetch->slots);
	dataset_close((struct dataset *)prefetch->dataset);
	pthread_cond_destroy(&prefetch->changed);
	pthread_mutex_destroy(&prefetch->lock);
	free(prefetch);
}

static void init_locks(struct prefetch *prefetch)
{
	deadline_condition(&prefetch->changed);
	pthread_mutex_init(&prefetch->lock, NULL);
}

static int alloc_slots(struct prefetch *prefetch, struct err *err)
{
	prefetch->slots = calloc((size_t)prefetch->slot_count, sizeof *prefetch->slots);
	if (!prefetch->slots)
		return err_set(err, "data: no memory to read ahead");
	for (int i = 0; i < prefetch->slot_count; i++) {
		struct slot *slot = &prefetch->slots[i];
		slot->samples = calloc((size_t)prefetch->samples, sizeof *slot->samples);
		slot->batch = batch_alloc(prefetch->dataset, prefetch->samples, err);
		if (!slot->samples || !slot->batch)
			return err_set(err, "data: no memory to read %d batches of %d samples ahead",
				prefetch->depth, prefetch->samples);
	}
	return 0;
}

struct prefetch *prefetch_start(const struct dataset *dataset, int samples, int vocabulary,
	int depth, struct err *err)
{
	if (samples < 1 || depth < 1) {
		err_set(err, "data: reading %d batches of %d samples ahead makes no sense", depth, samples);
		return NULL;
	}
	struct prefetch *prefetch = calloc(1, sizeof *prefetch);
	if (!prefetch) {
		err_set(err, "data: no memory to read ahead");
		return NULL;
	}
	*prefetch = (struct prefetch) { .dataset = dataset_hold(dataset),
		.samples = samples,
		.vocabulary = vocabulary,
		.depth = depth,
		.slot_count = depth + 1 };
	init_locks(prefetch);
	int rc = alloc_slots(prefetch, err);
	if (rc == 0 && (rc = thread_start(&prefetch->thread, read_ahead, prefetch)) != 0)
		err_set(err, "data: couldn't start a thread to read ahead: %s", strerror(rc));
	if (rc == 0)
		return prefetch;
	destroy(prefetch);
	return NULL;
}

int prefetch_push(struct prefetch *prefetch, const uint64_t *samples, struct err *err)
{
	pthread_mutex_lock(&prefetch->lock);
	bool full = prefetch->pushed - prefetch->taken >= (uint64_t)prefetch->depth;
	if (!full) {
		struct slot *slot = &prefetch->slots[prefetch->pushed % (uint64_t)prefetch->slot_count];
		memcpy(slot->samples, samples, (size_t)prefetch->samples * sizeof *samples);
		prefetch->pushed++;
		pthread_cond_broadcast(&prefetch->changed);
	}
	pthread_mutex_unlock(&prefetch->lock);
	return full ? err_set(err, "data: %d batches are read ahead already", prefetch->depth) : 0;
}

/* Waits until the batch at `place` is read. False when the deadline passed. */
static bool wait_until_read(struct prefetch *prefetch, uint64_t place)
{
	struct timespec deadline = deadline_timespec(deadline_in(READ_SECONDS));
	while (prefetch->read <= place)
		if (pthread_cond_timedwait(&prefetch->changed, &prefetch->lock, &deadline) != 0
			&& prefetch->read <= place)
			return false;
	return true;
}

const struct batch *prefetch_next(struct prefetch *prefetch, struct err *err)
{
	pthread_mutex_lock(&prefetch->lock);
	const struct batch *batch = NULL;
	struct slot *slot = &prefetch->slots[prefetch->taken % (uint64_t)prefetch->slot_count];
	if (prefetch->taken == prefetch->pushed) {
		err_set(err, "data: no batch was asked for");
	} else if (!wait_until_read(prefetch, prefetch->taken)) {
		err_fail(err, EXIT_LOST, "data: couldn't read %s: no answer within %d s",
			prefetch->dataset->name, READ_SECONDS);
	} else {
		prefetch->taken++;
		if (!slot->failed)
			batch = slot->batch;
		else if (err)
			*err = slot->err;
	}
	pthread_mutex_unlock(&prefetch->lock);
	return batch;
}

int prefetch_pending(const struct prefetch *prefetch)
{
	struct prefetch *locked = (struct prefetch *)prefetch;
	pthread_mutex_lock(&locked->lock);
	int pending = (int)(prefetch->pushed - prefetch->taken);
	pthread_mutex_unlock(&locked->lock);
	return pending;
}

void prefetch_stop(struct prefetch *prefetch)
{
	if (!prefetch)
		return;
	struct timespec deadline = deadline_timespec(deadline_in(STOP_SECONDS));
	int rc = 0;
	pthread_mutex_lock(&prefetch->lock);
	prefetch->stop = true;
	pthread_cond_broadcast(&prefetch->changed);
	while (!prefetch->ended && rc == 0)
		rc = pthread_cond_timedwait(&prefetch->changed, &prefetch->lock, &deadline);
	bool ended = prefetch->ended;
	pthread_mutex_unlock(&prefetch->lock);
	/* A thread that hangs in a read keeps what it uses, even the data set; the process is about to
	 * end. */
	if (!ended) {
		pthread_detach(prefetch->thread);
		return;
	}
	pthread_join(prefetch->thread, NULL);
	destroy(prefetch);
}
