/* SPDX-License-Identifier: Apache-2.0 */
/* The copy of the state, and the thread that writes it. */
#include "trainer/saver.h"

#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/ckpt_save.h"
#include "checkpoint/owner.h"
#include "checkpoint/snapshot.h"
#include "common/clock.h"
#include "common/log.h"

#define UNTOLD 16 /* saves that saver_take has not been asked for; older ones are forgotten */

struct saver {
	struct saver_plan plan;
	const struct tensor_table *tensors;
	float *weights, *m, *v;            /* the copy */
	struct snapshot snapshot;
	struct snapshot_tensor *rows;
	struct snapshot_slice *slices;

	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool busy, ending;
	int64_t newest;                    /* durable */
	int fault;
	struct err err;                    /* of the last save, when it failed */
	double stall;                      /* of the last save */
	struct saver_saved untold[UNTOLD];
	int untold_count;
};

static void describe(struct saver *saver)
{
	for (int i = 0; i < saver->tensors->count; i++) {
		const struct tensor *row = &saver->tensors->rows[i];
		struct snapshot_tensor *tensor = &saver->rows[i];
		*tensor = (struct snapshot_tensor){ .name = row->name, .dtype = SAFETENSORS_F32, .dims = row->dims,
			.data = saver->weights + row->offset };
		for (int d = 0; d < row->dims; d++)
			tensor->shape[d] = row->shape[d];
		saver->slices[i] = (struct snapshot_slice){ .tensor = row->name, .count = row->count, .state = {
			[SNAPSHOT_MASTER] = saver->weights + row->offset, [SNAPSHOT_M] = saver->m + row->offset,
			[SNAPSHOT_V] = saver->v + row->offset } };
	}
	saver->snapshot = (struct snapshot){ .attempt = saver->plan.attempt, .world_size = saver->plan.world_size,
		.seed = saver->plan.seed, .config_json = saver->plan.config_json, .numerics_json = saver->plan.numerics_json,
		.model_json = saver->plan.model_json, .tensors = saver->rows, .tensor_count = (size_t)saver->tensors->count,
		.slices = saver->slices, .slice_count = (size_t)saver->tensors->count };
}

static void save_once(struct saver *saver)
{
	struct ckpt_saved saved = { 0 };
	struct err err = { 0 };
	int64_t step = saver->snapshot.step;
	int rc = ckpt_save(saver->plan.dir, &saver->snapshot, saver->plan.token, NULL, &saved, &err);
	if (rc == 0) {
		log_info("checkpoint: step %lld is durable: %.1f MB in %.2f s", (long long)step, (double)saved.bytes * 1e-6,
			saved.seconds);
		if (ckpt_dir_retain(saver->plan.dir, &saver->plan.retention, saver->plan.token, &err) < 0)
			log_error("checkpoint: %s", err.text);
	} else {
		log_error("checkpoint: couldn't save step %lld: %s; the last good one is %s%lld", (long long)step, err.text,
			saver->newest < 0 ? "none, " : "step ", (long long)saver->newest);
	}
	struct err owner;
	const struct saver_saved told = { .step = step, .bytes = saved.bytes, .stall = saver->stall, .flush = saved.seconds };
	bool lost = rc < 0 && owner_verify(saver->plan.dir, saver->plan.token, &owner) < 0 && owner.status == EXIT_FAULT;
	pthread_mutex_lock(&saver->lock);
	if (rc == 0)
		saver->newest = step;
	if (rc == 0 && saver->untold_count < UNTOLD)
		saver->untold[saver->untold_count++] = told;
	if (lost)
		saver->fault = EXIT_FAULT;
	saver->err = err;
	saver->busy = false;
	pthread_cond_broadcast(&saver->changed);
	pthread_mutex_unlock(&saver->lock);
}

static void *run(void *arg)
{
	struct saver *saver = arg;
	for (;;) {
		pthread_mutex_lock(&saver->lock);
		while (!saver->busy && !saver->ending)
			pthread_cond_wait(&saver->changed, &saver->lock);
		bool work = saver->busy;
		pthread_mutex_unlock(&saver->lock);
		if (!work)
			return NULL;
		save_once(saver);
	}
}

static int alloc(struct saver *saver)
{
	size_t bytes = saver->tensors->elements * sizeof(float), count = (size_t)saver->tensors->count;
	saver->weights = malloc(bytes);
	saver->m = malloc(bytes);
	saver->v = malloc(bytes);
	saver->rows = calloc(count, sizeof *saver->rows);
	saver->slices = calloc(count, sizeof *saver->slices);
	return saver->weights && saver->m && saver->v && saver->rows && saver->slices ? 0 : -1;
}

static void release(struct saver *saver)
{
	free(saver->weights);
	free(saver->m);
	free(saver->v);
	free(saver->rows);
	free(saver->slices);
	free(saver);
}

static void init_monotonic(pthread_cond_t *condition)
{
	pthread_condattr_t attributes;
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(condition, &attributes);
	pthread_condattr_destroy(&attributes);
}

struct saver *saver_start(const struct saver_plan *plan, const struct state *state, struct err *err)
{
	struct saver *saver = calloc(1, sizeof *saver);
	if (!saver) {
		err_set(err, "checkpoint: out of memory");
		return NULL;
	}
	saver->plan = *plan;
	saver->tensors = state->tensors;
	saver->newest = plan->newest;
	if (alloc(saver) < 0) {
		err_set(err, "checkpoint: couldn't get %zu MB for the copy of the state: out of memory", state_bytes(state) >> 20);
		release(saver);
		return NULL;
	}
	describe(saver);
	pthread_mutex_init(&saver->lock, NULL);
	init_monotonic(&saver->changed);
	int error = pthread_create(&saver->thread, NULL, run, saver);
	if (error) {
		err_set(err, "checkpoint: couldn't start the thread that saves: %s", strerror(error));
		release(saver);
		return NULL;
	}
	return saver;
}

/* With the lock held. False when the save in flight was not over in time. */
static bool wait_idle(struct saver *saver, double patience)
{
	struct deadline deadline = deadline_in(patience);
	struct timespec until = deadline_timespec(deadline);
	while (saver->busy && !deadline_passed(deadline))
		pthread_cond_timedwait(&saver->changed, &saver->lock, &until);
	return !saver->busy;
}

/* With the lock held and no save in flight. */
static void begin(struct saver *saver, const struct state *state, const struct saver_losses *losses)
{
	size_t bytes = state->tensors->elements * sizeof(float);
	if (saver->newest == (int64_t)state->step)
		return;
	memcpy(saver->weights, state->weights, bytes);
	memcpy(saver->m, state->m, bytes);
	memcpy(saver->v, state->v, bytes);
	saver->snapshot.step = (int64_t)state->step;
	saver->snapshot.cursor = state->step * saver->plan.global_batch;
	/* A step that was left out changed nothing: its state is good though its loss is not. */
	saver->snapshot.loss = isfinite(losses->training) ? losses->training : NAN;
	saver->snapshot.validation_loss = isfinite(losses->validation) ? losses->validation : NAN;
	saver->busy = true;
	pthread_cond_broadcast(&saver->changed);
}

void saver_save(struct saver *saver, const struct state *state, const struct saver_losses *losses, bool last)
{
	double began = clock_now();
	pthread_mutex_lock(&saver->lock);
	if (saver->busy && saver->snapshot.step == (int64_t)state->step) {
		pthread_mutex_unlock(&saver->lock);
		return;
	}
	if (!wait_idle(saver, last ? saver->plan.last_patience : saver->plan.patience))
		log_warn("checkpoint: step %llu is not saved: the save of step %lld still runs; a larger --ckpt-every avoids that",
			(unsigned long long)state->step, (long long)saver->snapshot.step);
	else if (clock_now() - began > 1)
		log_info("checkpoint: training waited %.1f s for the save before; a larger --ckpt-every avoids that",
			clock_now() - began);
	if (!saver->busy) {
		begin(saver, state, losses);
		saver->stall = clock_now() - began;
	}
	pthread_mutex_unlock(&saver->lock);
}

int saver_wait(struct saver *saver, uint64_t step, struct err *err)
{
	int rc = 0;
	pthread_mutex_lock(&saver->lock);
	if (!wait_idle(saver, saver->plan.last_patience)) {
		rc = err_fail(err, EXIT_LOST, "checkpoint: the save of step %lld still runs after %.0f s", (long long)step,
			saver->plan.last_patience);
	} else if (saver->newest != (int64_t)step) {
		*err = saver->err;
		rc = -1;
	}
	pthread_mutex_unlock(&saver->lock);
	return rc;
}

bool saver_take(struct saver *saver, struct saver_saved *saved)
{
	pthread_mutex_lock(&saver->lock);
	bool any = saver->untold_count > 0;
	if (any) {
		*saved = saver->untold[0];
		memmove(saver->untold, saver->untold + 1, (size_t)--saver->untold_count * sizeof *saved);
	}
	pthread_mutex_unlock(&saver->lock);
	return any;
}

int saver_fault(struct saver *saver)
{
	pthread_mutex_lock(&saver->lock);
	int fault = saver->fault;
	pthread_mutex_unlock(&saver->lock);
	return fault;
}

void saver_stop(struct saver *saver)
{
	if (!saver)
		return;
	pthread_mutex_lock(&saver->lock);
	saver->ending = true;
	pthread_cond_broadcast(&saver->changed);
	bool idle = wait_idle(saver, saver->plan.last_patience);
	pthread_mutex_unlock(&saver->lock);
	if (!idle)
		return; /* it hangs in the file system: the process ends without it */
	pthread_join(saver->thread, NULL);
	pthread_cond_destroy(&saver->changed);
	pthread_mutex_destroy(&saver->lock);
	release(saver);
}
