/* SPDX-License-Identifier: Apache-2.0 */
/* A state in host memory is not copied: its live buffer is handed over to the service, and the next
 * update writes into another one (buffer_pool.h). A state on a device is copied into a free buffer
 * (device_snapshot.h). The client's thread, beside the training, waits for the copies, hands the
 * buffer over and reports what becomes of it. */
#include "trainer/state/async_saver.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/client/ckptd_client.h"
#include "checkpoint/directory/owner.h"
#include "checkpoint/save/shard_write.h"
#include "common/clock.h"
#include "common/log.h"
#include "trainer/state/layout.h"
#include "trainer/state/device_snapshot.h"
#include "trainer/state/buffer_pool.h"

#define SNAPSHOTS (SNAPSHOT_BUFFERS - 1)
#define SERVICE_BYTES ((size_t)16 << 20) /* of the service's process; it takes some 7 MB */
#define UNTOLD 16 /* saves that await async_saver_take; beyond that the oldest is forgotten */
#define RECENT 8  /* saves whose stall is remembered */

/* A save that has begun. */
struct begun {
	int64_t step;
	double stall; /* seconds, without those of `buffer` */
	int buffer;   /* whose copies may still add to the stall; -1: none */
};

struct async_saver {
	struct async_saver_plan plan;
	struct layout layout;
	struct snapshot snapshot;              /* what is the same in all saves */
	struct buffer_pool pool;               /* of a state in host memory */
	struct device_snapshot *snapshot_copy; /* of a state on a device, else NULL */
	const struct snapshot_memory *memory;  /* of the one or the other */
	struct ckptd_client *client;

	pthread_mutex_t lock; /* guards what follows */
	int64_t newest;       /* durable step; for parts other than 0: written step */
	int64_t begun;        /* newest step whose save has begun and not failed */
	int fault;
	struct err err;              /* of the last save that failed or was left out */
	struct begun recent[RECENT]; /* ring */
	unsigned turn;
	struct save_result untold[UNTOLD];
	int untold_count;
};

static bool is_first(const struct async_saver *saver)
{
	return saver->layout.part == 0;
}

/* ---- what the service says ---- */

/* Called with the lock held. */
static double stall_of(const struct async_saver *saver, int64_t step)
{
	for (int i = 0; i < RECENT; i++)
		if (saver->recent[i].step == step)
			return saver->recent[i].stall
				+ (saver->recent[i].buffer < 0
						? 0
						: device_snapshot_stall(saver->snapshot_copy, saver->recent[i].buffer));
	return 0;
}

/* Adds the stall of a buffer's copies to its save before another save takes the buffer. */
static void settle_stall(struct async_saver *saver, int buffer)
{
	pthread_mutex_lock(&saver->lock);
	for (int i = 0; i < RECENT; i++)
		if (saver->recent[i].buffer == buffer) {
			saver->recent[i].stall += device_snapshot_stall(saver->snapshot_copy, buffer);
			saver->recent[i].buffer = -1;
		}
	pthread_mutex_unlock(&saver->lock);
}

static void note_durable(struct async_saver *saver, const struct save_result *result)
{
	pthread_mutex_lock(&saver->lock);
	double stall = stall_of(saver, result->step);
	pthread_mutex_unlock(&saver->lock);
	log_info("checkpoint: step %lld is durable: %.1f MB in %.2f s; training stood still for %.4f s",
		(long long)result->step, (double)result->bytes * 1e-6, result->seconds, stall);
	pthread_mutex_lock(&saver->lock);
	saver->newest = result->step;
	if (saver->untold_count == UNTOLD)
		memmove(saver->untold, saver->untold + 1,
			(size_t)--saver->untold_count * sizeof saver->untold[0]);
	saver->untold[saver->untold_count] = *result;
	saver->untold[saver->untold_count++].stall = stall;
	pthread_mutex_unlock(&saver->lock);
}

static void note_written(struct async_saver *saver, const struct save_result *result)
{
	pthread_mutex_lock(&saver->lock);
	if (!is_first(saver))
		saver->newest = result->step;
	pthread_mutex_unlock(&saver->lock);
}

/* Rank 0 logs the error for all, since it hears of every part that fails. */
static void tell_failed(struct async_saver *saver, int64_t step, const char *text)
{
	pthread_mutex_lock(&saver->lock);
	long long newest = saver->newest;
	pthread_mutex_unlock(&saver->lock);
	if (is_first(saver) && newest < 0)
		log_error("checkpoint: couldn't save step %lld: %s; there is no good one yet",
			(long long)step, text);
	else if (is_first(saver))
		log_error("checkpoint: couldn't save step %lld: %s; the last good one is step %lld",
			(long long)step, text, newest);
	else
		log_warn("checkpoint: couldn't write part %d of step %lld: %s", saver->layout.part + 1,
			(long long)step, text);
}

static void note_failed(struct async_saver *saver, int64_t step, const struct err *why)
{
	struct err owner;
	tell_failed(saver, step, why->text);
	bool lost = why->status == EXIT_FAULT
		&& owner_verify(saver->plan.dir, saver->plan.token, &owner) < 0
		&& owner.status == EXIT_FAULT;
	pthread_mutex_lock(&saver->lock);
	saver->err = *why;
	if (saver->begun == step)
		saver->begun = saver->newest;
	if (lost)
		saver->fault = EXIT_FAULT;
	pthread_mutex_unlock(&saver->lock);
}

static void take_result(void *arg, const struct save_result *result)
{
	struct async_saver *saver = arg;
	if (result->outcome == SAVE_DURABLE)
		note_durable(saver, result);
	else if (result->outcome == SAVE_WRITTEN)
		note_written(saver, result);
	else
		note_failed(saver, result->step, &result->err);
}

static void tell_lost(void *arg, const char *text)
{
	(void)arg;
	log_warn("checkpoint: %s; training goes on", text);
}

/* Waits for the copies. -1 when they failed, so that the buffer holds no state. */
static int complete(void *arg, int buffer, const struct save_step *step, struct err *err)
{
	struct async_saver *saver = arg;
	if (saver->snapshot_copy) {
		if (device_snapshot_finish(saver->snapshot_copy, saver->plan.patience, err) < 0)
			return -1;
		log_debug(
			"checkpoint: the state after step %lld is copied: the device took %.6f s for %.1f MB",
			(long long)step->step, device_snapshot_seconds(saver->snapshot_copy, buffer),
			(double)layout_own_bytes(&saver->layout) * 1e-6);
	}
	if (saver->plan.before)
		saver->plan.before(saver->plan.arg);
	return 0;
}

/* ---- start ---- */

/* What the service takes beside the snapshots; its threads write two requests each, at least. */
static size_t service_memory(size_t snapshot)
{
	return SERVICE_BYTES
		+ (snapshot / 2 < SHARD_WRITE_BUFFERS ? snapshot / 2 : SHARD_WRITE_BUFFERS);
}

/* Two snapshots, or one where two do not fit. The pages of the state itself are there already. */
static int choose_buffers(const struct async_saver *saver)
{
	const struct async_saver_plan *plan = &saver->plan;
	size_t available = snapshot_memory_available(), own = layout_own_bytes(&saver->layout);
	size_t needed = (SNAPSHOTS * own + service_memory(own)) * (size_t)plan->sharers + plan->reserve;
	if (plan->buffers)
		return plan->buffers;
	if (!available || needed <= available)
		return SNAPSHOTS;
	log_warn(
		"checkpoint: only one snapshot is kept in memory: two of %.0f MB each, with what the "
		"service%s needs, take %.0f MB, and %.0f MB are left, so a save waits for the one before "
		"(--ckpt-slots 2 insists on two)",
		(double)own * 1e-6, plan->reserve ? " and a step" : "", (double)needed * 1e-6,
		(double)available * 1e-6);
	return 1;
}

/* Device snapshots take their memory at the start, so this checks that it is there; --ckpt-slots
 * overrules the check. */
static int check_memory(const struct async_saver *saver, int buffers, struct err *err)
{
	size_t available = snapshot_memory_available(), own = layout_own_bytes(&saver->layout);
	size_t needed = ((size_t)buffers * own + service_memory(own)) * (size_t)saver->plan.sharers;
	if (saver->plan.buffers || !available || needed <= available)
		return 0;
	return err_fail(err, EXIT_USAGE,
		"checkpoint: a snapshot and the service take %.0f MB of this node's memory; %.0f MB are "
		"left: ask for more by --mem, divide it among the nodes by --ckpt-writers node, or insist "
		"by --ckpt-slots 1",
		(double)needed * 1e-6, (double)available * 1e-6);
}

/* Makes the buffers that are handed over. */
static int make_memory(struct async_saver *saver, struct state *state, struct err *err)
{
	int buffers = choose_buffers(saver);
	if (!device_has_memory(state->ops->device)) {
		saver->memory = &state->memory;
		return buffer_pool_start(&saver->pool, state, &saver->layout, buffers + 1, err);
	}
	if (check_memory(saver, buffers, err) < 0)
		return -1;
	saver->snapshot_copy = device_snapshot_start(state, &saver->layout, buffers, err);
	saver->memory = saver->snapshot_copy ? device_snapshot_memory(saver->snapshot_copy) : NULL;
	return saver->snapshot_copy ? 0 : -1;
}

/* Number of saves that can be in flight at once. */
static int snapshots_of(const struct async_saver *saver)
{
	return saver->memory->buffers - (saver->snapshot_copy ? 0 : 1);
}

/* Whether there is memory for a buffer that nobody has touched; where there is none, training waits
 * for the save before, as it does where there is no such buffer. */
static bool may_fill(void *arg, int buffer)
{
	const struct async_saver *saver = arg;
	if (saver->snapshot_copy || saver->plan.buffers || buffer_pool_is_there(&saver->pool, buffer))
		return true;
	size_t available = snapshot_memory_available();
	return !available
		|| layout_own_bytes(&saver->layout) * (size_t)saver->plan.sharers <= available;
}

static int open_client(struct async_saver *saver, struct err *err)
{
	const struct async_saver_plan *plan = &saver->plan;
	const struct layout *layout = &saver->layout;
	saver->snapshot = (struct snapshot) { .attempt = plan->attempt,
		.world_size = plan->world_size,
		.seed = plan->seed,
		.config_json = plan->config_json,
		.numerics_json = plan->numerics_json,
		.model_json = plan->model_json,
		.tensors = layout->tensors,
		.tensor_count = (size_t)layout->table->count,
		.slices = layout->slices,
		.slice_count = layout->slice_count,
		.part = layout->part,
		.parts = layout->parts,
		.shard_size = plan->shard_size };
	const struct ckptd_plan service = { .dir = plan->dir,
		.token = plan->token,
		.memory = saver->memory,
		.snapshot = &saver->snapshot,
		.retention = plan->retention,
		.host = layout->parts > 1 ? plan->host : NULL,
		.first = plan->first,
		.timeout = plan->start_timeout,
		.complete = complete,
		.ended = take_result,
		.lost = tell_lost,
		.may_fill = may_fill,
		.arg = saver };
	saver->client = ckptd_client_open(&service, err);
	return saver->client ? 0 : -1;
}

static int start_stages(struct async_saver *saver, struct state *state, struct err *err)
{
	if (make_memory(saver, state, err) < 0)
		return -1;
	layout_place(&saver->layout, saver->memory->base[0]);
	if (open_client(saver, err) < 0)
		return -1;
	log_info("checkpoint: the service is pid %lld; this rank gives it %.1f MB of each save, with "
			 "room for %d at once%s",
		(long long)ckptd_client_service(saver->client),
		(double)layout_own_bytes(&saver->layout) * 1e-6, snapshots_of(saver),
		saver->snapshot_copy && device_snapshot_is_pinned(saver->snapshot_copy)
			? " in pinned memory"
			: "");
	return 0;
}

int async_saver_start(struct async_saver **out, const struct async_saver_plan *plan,
	struct state *state, struct err *err)
{
	struct async_saver *saver = calloc(1, sizeof *saver);
	*out = NULL;
	if (!saver)
		return err_set(err, "checkpoint: out of memory");
	saver->plan = *plan;
	saver->newest = saver->begun = plan->newest;
	for (int i = 0; i < RECENT; i++)
		saver->recent[i] = (struct begun) { .step = -1, .buffer = -1 };
	pthread_mutex_init(&saver->lock, NULL);
	int rc = layout_make(&saver->layout, state->tensors, plan->part, plan->writers, plan->shards,
		plan->shard_count, err);
	bool idle = rc == 0 && saver->layout.part < 0;
	if (rc == 0 && !idle)
		rc = start_stages(saver, state, err);
	if (rc < 0 || idle)
		async_saver_stop(saver);
	else
		*out = saver;
	return rc;
}

const char *async_saver_address(const struct async_saver *saver)
{
	return ckptd_client_address(saver->client);
}

size_t async_saver_memory(const struct async_saver *saver)
{
	return layout_own_bytes(&saver->layout) * (size_t)snapshots_of(saver);
}

/* ---- a save ---- */

/* Waits for a free buffer, for the next update or for copies; -1 where there is none. Logs a
 * failure, and a wait of more than a second. */
static int wait_for_buffer(struct async_saver *saver, int64_t step, double patience)
{
	double began = clock_now();
	int64_t before = saver->recent[saver->turn % RECENT].step;
	int buffer = ckptd_client_buffer(saver->client,
		saver->snapshot_copy ? -1 : buffer_pool_live(&saver->pool), patience);
	if (buffer < 0) {
		log_warn("checkpoint: step %lld is not saved: the save of step %lld still runs; a larger "
				 "--ckpt-every avoids that",
			(long long)step, (long long)before);
		pthread_mutex_lock(&saver->lock);
		err_fail(&saver->err, EXIT_LOST,
			"checkpoint: the save of step %lld still runs after %.0f s", (long long)before,
			patience);
		pthread_mutex_unlock(&saver->lock);
	} else if (clock_now() - began > 1) {
		log_info("checkpoint: training waited %.1f s for the save before; a larger --ckpt-every "
				 "avoids that",
			clock_now() - began);
	}
	return buffer;
}

static double known(double loss)
{
	return isfinite(loss) ? loss : NAN; /* a step that was left out changed nothing, so its state is
										   good though its loss is not */
}

/* Returns the buffer that holds the state, or will when its copies are done; -1 after noting a
 * failure. */
static int give_away(struct async_saver *saver, int64_t step, int buffer)
{
	struct err err;
	if (!saver->snapshot_copy) {
		int live = buffer_pool_live(&saver->pool);
		if (!buffer_pool_is_there(&saver->pool, buffer))
			log_info("checkpoint: the save before step %lld still runs: this rank keeps a second "
					 "snapshot of %.1f MB from now on",
				(long long)step, (double)layout_own_bytes(&saver->layout) * 1e-6);
		buffer_pool_switch(&saver->pool, buffer);
		return live;
	}
	settle_stall(saver, buffer);
	if (device_snapshot_begin(saver->snapshot_copy, buffer, &err) == 0)
		return buffer;
	note_failed(saver, step, &err);
	return -1;
}

void async_saver_save(struct async_saver *saver, const struct state *state,
	const struct save_step *losses, bool last)
{
	double began = clock_now();
	const struct save_step what = { .step = (int64_t)state->step,
		.cursor = state->step * saver->plan.global_batch,
		.loss = known(losses->loss),
		.validation_loss = known(losses->validation_loss) };
	struct err err;
	pthread_mutex_lock(&saver->lock);
	bool begun = saver->begun == what.step;
	pthread_mutex_unlock(&saver->lock);
	if (begun)
		return;
	int buffer =
		wait_for_buffer(saver, what.step, last ? saver->plan.last_patience : saver->plan.patience);
	if (buffer < 0)
		return;
	log_debug("checkpoint: giving away the state after step %lld", (long long)what.step);
	int given = give_away(saver, what.step, buffer);
	if (given < 0)
		return;
	pthread_mutex_lock(&saver->lock);
	saver->begun = what.step;
	saver->recent[++saver->turn % RECENT] = (struct begun) { .step = what.step,
		.stall = clock_now() - began,
		.buffer = saver->snapshot_copy ? buffer : -1 };
	pthread_mutex_unlock(&saver->lock);
	struct snapshot snapshot = saver->snapshot;
	snapshot.at = what;
	if (ckptd_client_begin(saver->client, given, &snapshot, &err) == 0)
		return;
	note_failed(saver, what.step, &err);
	/* No other thread finishes the copies now, and the next update waits for their end. */
	if (saver->snapshot_copy)
		device_snapshot_finish(saver->snapshot_copy, saver->plan.patience, &err);
}

int async_saver_wait(struct async_saver *saver, uint64_t step, struct err *err)
{
	pthread_mutex_lock(&saver->lock);
	bool durable = saver->newest == (int64_t)step, begun = saver->begun == (int64_t)step;
	if (!durable && !begun)
		*err = saver->err;
	pthread_mutex_unlock(&saver->lock);
	if (durable)
		return 0;
	return begun ? ckptd_client_wait(saver->client, (int64_t)step, saver->plan.last_patience, err)
				 : -1;
}

bool async_saver_take(struct async_saver *saver, struct save_result *saved)
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

int async_saver_fault(struct async_saver *saver)
{
	pthread_mutex_lock(&saver->lock);
	int fault = saver->fault;
	pthread_mutex_unlock(&saver->lock);
	return fault;
}

/* ---- end ---- */

/* Tries to wait until the last save is written, since a service that was started inside the job's
 * step ends with the step. */
void async_saver_stop(struct async_saver *saver)
{
	if (!saver)
		return;
	if (!ckptd_client_close(saver->client, saver->plan.last_patience))
		return; /* its thread hangs: the process ends without it */
	buffer_pool_stop(&saver->pool);
	device_snapshot_stop(saver->snapshot_copy);
	layout_clear(&saver->layout);
	pthread_mutex_destroy(&saver->lock);
	free(saver);
}
