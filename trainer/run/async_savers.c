/* SPDX-License-Identifier: Apache-2.0 */
/* Rank 0 starts its saver first, since the other services report to its service. Then it broadcasts
 * what the others need, and they start theirs. */
#include "trainer/run/async_savers.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "common/record.h"
#include "common/auto.h"
#include "common/log.h"
#include "common/opt.h"
#include "launch/rank_address.h"
#include "trainer/comm/status_exchange.h"

#define START_SECONDS 30.0   /* to find or start the checkpoint service */
#define TEXT_MAX (64u << 20) /* bytes of what rank 0 broadcasts */

/* This rank's place among the designated ranks. */
struct place {
	int part;    /* -1: it is not one */
	int writers; /* number of designated ranks */
	int sharers; /* number of them on one node */
};

/* Collective, since which rank is the first of its node can't be calculated by others. */
static int find_place(const struct run *run, struct place *place, struct err *err)
{
	const struct ident *ident = &run->ident;
	int choice = run->settings.ckpt_writers;
	char mine = choice == WRITERS_ALL
		|| (choice == WRITERS_NODE ? ident->local_rank == 0 : ident->rank == 0);
	AUTO_FREE char *all = calloc((size_t)ident->world_size, 1);
	if (!all)
		return err_set(err, "checkpoint: out of memory");
	if (comm_wait(run->comm, comm_allgather(run->comm, "designated ranks", &mine, all, 1), err) < 0)
		return -1;
	*place = (struct place) { .part = -1,
		.sharers = choice == WRITERS_ALL ? ident->local_world_size : 1 };
	for (int rank = 0; rank < ident->world_size; rank++) {
		if (rank == ident->rank && mine)
			place->part = place->writers;
		place->writers += all[rank];
	}
	if (all[0])
		return 0;
	err_set(err,
		"checkpoint: rank 0 is not the first rank of its node, so it can't collect the parts: use "
		"--ckpt-writers all");
	return ERR_SHARED;
}

/* Called on the client's thread before each hand-over: no step up to a checkpoint may lack its
 * line. */
static void sync_metrics(void *arg)
{
	struct run *run = arg;
	struct err err;
	if (metrics_sync(run->metrics, &err) < 0)
		log_warn("%s", err.text);
}

/* Bytes of the host's memory that a rank's first step touches; the GPU has its own. */
static size_t memory_of_a_step(const struct run *run)
{
	return device_has_memory(run->ops->device) ? 0
											   : ddp_memory(run->ddp) + model_memory(run->model);
}

static int start(struct run *run, const struct place *place, const char *first, struct err *err)
{
	const struct settings *settings = &run->settings;
	char host[RANK_ADDRESS_SIZE] = "";
	if (place->part == 0 && place->writers > 1 && rank_address(&run->ident, host, err) < 0)
		return -1;
	size_t shard_count;
	const struct zero_shard *shards = ddp_shards(run->ddp, &shard_count);
	const struct async_saver_plan plan = {
		.dir = &run->ckpt_dir,
		.token = run->token,
		.attempt = run->ident.attempt,
		.world_size = run->ident.world_size,
		.seed = (uint64_t)settings->seed,
		.global_batch = (uint64_t)settings->global_batch,
		.config_json = run->config_json,
		.numerics_json = run->numerics_json,
		.model_json = run->model_json,
		.retention = { .keep_last = (size_t)settings->keep_last,
			.keep_every = settings->keep_every,
			.keep_best = (size_t)settings->keep_best },
		.shard_size = (uint64_t)settings->shard_size,
		.part = place->part,
		.writers = place->writers,
		.shards = shards,
		.shard_count = shard_count,
		.buffers = settings->ckpt_slots == OPT_AUTO ? 0 : (int)settings->ckpt_slots,
		.reserve = memory_of_a_step(run) * (size_t)run->ident.local_world_size,
		.sharers = place->sharers,
		.host = host,
		.first = first,
		.newest = run->state.step ? (int64_t)run->state.step : -1,
		.patience = settings->collective_timeout / 2,
		.last_patience = settings->save_timeout,
		.start_timeout = START_SECONDS,
		.before = run->metrics ? sync_metrics : NULL,
		.arg = run,
	};
	return async_saver_start(&run->saver, &plan, &run->state, err);
}

static int start_first(struct run *run, const struct place *place, struct err *err)
{
	if (run->ident.rank != 0)
		return 0;
	run->ckpt_dir = *folder_dir(run->folder); /* shares the folder's descriptor */
	run->token = strdup(folder_token(run->folder));
	return run->token ? start(run, place, NULL, err) : err_set(err, "checkpoint: out of memory");
}

/* ---- what rank 0 knows ---- */

static char *tell(const struct run *run)
{
	json_t *told = json_pack("{s:s, s:s, s:s, s:s, s:s}", "token", run->token, "config",
		run->config_json, "numerics", run->numerics_json, "model", run->model_json, "first",
		async_saver_address(run->saver));
	char *text = record_dump(told, JSON_COMPACT);
	json_decref(told);
	return text;
}

/* Collective. Rank 0 passes the text in *text; the others get it there, malloc'ed. */
static int broadcast(const struct run *run, char **text, struct err *err)
{
	uint64_t size = *text ? strlen(*text) : 0;
	if (comm_wait(run->comm,
			comm_broadcast(run->comm, "size of the records", &size, sizeof size, 0), err)
		< 0)
		return -1;
	if (size == 0 || size > TEXT_MAX) {
		err_set(err, "checkpoint: rank 0 couldn't send its records to the others");
		return ERR_SHARED;
	}
	if (run->ident.rank != 0)
		*text = calloc(size + 1, 1);
	if (!*text)
		return err_set(err, "checkpoint: out of memory");
	return comm_wait(run->comm, comm_broadcast(run->comm, "records", *text, size, 0), err);
}

static char *copy_of(const json_t *told, const char *name)
{
	const char *text = json_string_value(json_object_get(told, name));
	return text ? strdup(text) : NULL;
}

/* Starts the other designated ranks with the same records and the same directory. */
static int start_other(struct run *run, const struct place *place, const char *text,
	struct err *err)
{
	if (run->ident.rank == 0 || place->part < 0)
		return 0;
	json_t *told = json_loads(text, 0, NULL);
	AUTO_FREE char *first = copy_of(told, "first");
	run->token = copy_of(told, "token");
	run->config_json = copy_of(told, "config");
	run->numerics_json = copy_of(told, "numerics");
	run->model_json = copy_of(told, "model");
	json_decref(told);
	if (!first || !run->token || !run->config_json || !run->numerics_json || !run->model_json)
		return err_set(err, "checkpoint: couldn't read the records that rank 0 sent");
	if (ckpt_dir_open(&run->ckpt_dir, run->settings.ckpt_dir, err) < 0)
		return -1;
	run->ckpt_dir_opened = true;
	return start(run, place, first, err);
}

int async_savers_start(struct run *run, struct err *err)
{
	const char *stage = "checkpoint service", *node = run->ident.node;
	AUTO_FREE char *text = NULL;
	struct place place;
	if (!run->settings.ckpt_dir)
		return 0;
	int rc = find_place(run, &place, err);
	if (rc < 0)
		return rc;
	if ((rc = status_exchange(run->comm, stage, node, start_first(run, &place, err), err)) < 0
		|| place.writers == 1)
		return rc;
	if (run->ident.rank == 0)
		text = tell(run);
	if ((rc = broadcast(run, &text, err)) < 0)
		return rc;
	return status_exchange(run->comm, stage, node, start_other(run, &place, text, err), err);
}
