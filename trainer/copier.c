/* SPDX-License-Identifier: Apache-2.0 */
/* One list of pieces, taken in order by whoever has time. */
#include "config.h"

#include "trainer/copier.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* One copy. `number` tells a late thread that its copy is over. */
struct job {
	const struct copier_piece *pieces;
	uint64_t count, number;
};

#define NUMBER_SHIFT 40 /* of the job in `next`, above the piece */

struct copier {
	_Atomic uint64_t next; /* the piece to take, and its job's number */
	_Atomic uint64_t copied;

	pthread_t thread;
	pthread_mutex_t lock;  /* over what follows */
	pthread_cond_t changed;
	struct job job;
	bool ending;
};

/* The piece to copy; NULL when none of this job is left. */
static const struct copier_piece *take(struct copier *copier, const struct job *job)
{
	uint64_t base = job->number << NUMBER_SHIFT, next = atomic_load(&copier->next);
	do
		if (next < base || next - base >= job->count)
			return NULL;
	while (!atomic_compare_exchange_weak(&copier->next, &next, next + 1));
	return &job->pieces[next - base];
}

/* Makes the pages be there; quicker by one call than by one fault a page. */
static void populate(const struct copier_piece *piece)
{
#ifdef MADV_POPULATE_WRITE
	if (madvise(piece->to, piece->bytes, MADV_POPULATE_WRITE) == 0)
		return;
#endif
	memset(piece->to, 0, piece->bytes);
}

/* Who copies the last piece wakes those who wait. */
static void work(struct copier *copier, const struct job *job)
{
	for (const struct copier_piece *piece; (piece = take(copier, job));) {
		if (piece->from)
			memcpy(piece->to, piece->from, piece->bytes);
		else
			populate(piece);
		if (atomic_fetch_add(&copier->copied, 1) + 1 < job->count)
			continue;
		pthread_mutex_lock(&copier->lock);
		pthread_cond_broadcast(&copier->changed);
		pthread_mutex_unlock(&copier->lock);
	}
}

/* It must not take a core from a thread that computes: all others would wait for that one. Where it is refused, it is an
 * ordinary thread. */
static void yield_to_everyone(void)
{
#ifdef SCHED_IDLE
	const struct sched_param none = { 0 };
	pthread_setschedparam(pthread_self(), SCHED_IDLE, &none);
#endif
}

static void *run(void *arg)
{
	struct copier *copier = arg;
	uint64_t seen = 0;
	yield_to_everyone();
	pthread_mutex_lock(&copier->lock);
	while (!copier->ending) {
		if (copier->job.number == seen) {
			pthread_cond_wait(&copier->changed, &copier->lock);
			continue;
		}
		struct job job = copier->job;
		seen = job.number;
		pthread_mutex_unlock(&copier->lock);
		work(copier, &job);
		pthread_mutex_lock(&copier->lock);
	}
	pthread_mutex_unlock(&copier->lock);
	return NULL;
}

struct copier *copier_start(struct err *err)
{
	struct copier *copier = calloc(1, sizeof *copier);
	if (!copier) {
		err_set(err, "checkpoint: out of memory");
		return NULL;
	}
	pthread_mutex_init(&copier->lock, NULL);
	pthread_cond_init(&copier->changed, NULL);
	int error = pthread_create(&copier->thread, NULL, run, copier);
	if (!error)
		return copier;
	err_set(err, "checkpoint: couldn't start the thread that copies the state: %s", strerror(error));
	pthread_cond_destroy(&copier->changed);
	pthread_mutex_destroy(&copier->lock);
	free(copier);
	return NULL;
}

void copier_begin(struct copier *copier, const struct copier_piece *pieces, size_t count)
{
	copier_finish(copier);
	pthread_mutex_lock(&copier->lock);
	copier->job = (struct job){ pieces, count, copier->job.number + 1 };
	atomic_store(&copier->copied, 0);
	atomic_store(&copier->next, copier->job.number << NUMBER_SHIFT);
	pthread_cond_broadcast(&copier->changed);
	pthread_mutex_unlock(&copier->lock);
}

void copier_wait(struct copier *copier)
{
	pthread_mutex_lock(&copier->lock);
	while (atomic_load(&copier->copied) < copier->job.count)
		pthread_cond_wait(&copier->changed, &copier->lock);
	pthread_mutex_unlock(&copier->lock);
}

void copier_finish(struct copier *copier)
{
	struct job job = copier->job; /* only the caller changes it */
	if (atomic_load(&copier->copied) == job.count)
		return;
#pragma omp parallel
	work(copier, &job);
	copier_wait(copier);
}

void copier_stop(struct copier *copier)
{
	if (!copier)
		return;
	copier_finish(copier);
	pthread_mutex_lock(&copier->lock);
	copier->ending = true;
	pthread_cond_broadcast(&copier->changed);
	pthread_mutex_unlock(&copier->lock);
	pthread_join(copier->thread, NULL);
	pthread_cond_destroy(&copier->changed);
	pthread_mutex_destroy(&copier->lock);
	free(copier);
}
