/* SPDX-License-Identifier: Apache-2.0 */
/* The stages before the first step, in order. Each stage that may fail on one rank alone ends with
 * a status exchange. */
#include "config.h"
#include "trainer/run/prepare.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/alone.h"
#include "common/auto.h"
#include "common/log.h"
#include "common/opt.h"
#include "launch/job_query.h"
#include "launch/spot_watch.h"
#include "trainer/comm/status_exchange.h"
#include "trainer/ddp/ddp_plan.h"
#include "trainer/run/device.h"
#include "trainer/run/numerics.h"
#include "trainer/run/resume.h"
#include "trainer/run/settings_agree.h"
#include "trainer/run/async_savers.h"
#include "trainer/run/threads.h"

#define IO_SECONDS 60.0 /* an I/O error at the start is retried for this long */
#define TRACE_DEFAULT_STEPS 10

/* A missing rank may come late, or never come on its node: adds the remedies. */
static void name_patience(struct err *err)
{
	struct err why = *err;
	if (why.status == EXIT_LOST && strstr(why.text, "did not come"))
		err_fail(err, why.status,
			"%s: look at what it does there; --rdzv-timeout waits longer, srun's --exclude leaves "
			"a node out",
			why.text);
}

/* Learns who this rank is and connects it with the others. */
static int meet(struct run *run, struct err *err)
{
	const struct settings *settings = &run->settings;
	if (ident_discover(&run->ident, err) < 0)
		return -1;
	alone_warn(&run->ident);
	if (run->ident.world_size > 1)
		log_set_tag("rank %d on %s", run->ident.rank, run->ident.node);
	struct settings fitting = *settings; /* a new run: before the directory is opened */
	settings_fit_slots(&fitting, 0, run->ident.world_size);
	if (settings_check_world(&fitting, run->ident.world_size, err) < 0)
		return ERR_SHARED;
	if (spot_watch_begin(&run->ident, settings->notice, err) < 0)
		return err->status == EXIT_USAGE ? ERR_SHARED : -1;
	struct err why = { 0 };
	int rc = device_choose(run, &why);
	run->rdzv = rdzv_open(&run->ident, settings->rendezvous, settings->rdzv_timeout, err);
	if (!run->rdzv) {
		name_patience(err);
		return err->status == EXIT_USAGE ? ERR_SHARED
										 : -1; /* all ranks of a step are started the same way */
	}
	*err = why;
	if ((rc = device_agree(run, rc, err)) < 0) {
		name_patience(err);
		return rc;
	}
	run->flight = flight_create(&run->ident, err);
	if (!run->flight)
		return -1;
	if ((rc = device_comm(run, err)) == 0) {
		comm_stand(run->comm, run->flight);
		return 0;
	}
	name_patience(err);
	return rc;
}

/* Takes the checkpoint directory on rank 0; the attempt's number then names its metrics. */
static int open_folder(struct run *run, struct err *err)
{
	const struct settings *settings = &run->settings;
	if (run->ident.rank != 0 || !settings->ckpt_dir)
		return 0;
	const struct job_times times = job_times(run->ident.job);
	const struct folder_job job = { .ident = &run->ident,
		.submitted = times.submitted,
		.started = times.began,
		.ends = times.ends,
		.ends_now = job_ends,
		.is_running = job_is_running,
		.steps = settings->steps };
	run->folder = folder_open(settings->ckpt_dir, &job, settings->fresh, IO_SECONDS, err);
	if (!run->folder)
		return -1;
	run->metrics = metrics_open(folder_dir(run->folder)->fd, folder_attempt(run->folder), err);
	if (!run->metrics)
		return -1;
	flight_files_begin(folder_dir(run->folder)->fd);
	return 0;
}

/* Collective: a run keeps the slots that it began with. */
static int choose_slots(struct run *run, struct err *err)
{
	struct settings *settings = &run->settings;
	struct ckpt *ckpt = run->folder ? folder_checkpoint(run->folder) : NULL;
	int64_t recorded = 0;
	if (!settings->auto_slots)
		return 0;
	if (ckpt)
		recorded = json_integer_value(json_object_get(ckpt_manifest(ckpt)->numerics, "slots"));
	if (comm_wait(run->comm, comm_broadcast(run->comm, "slots", &recorded, sizeof recorded, 0), err)
		< 0)
		return -1;
	settings_fit_slots(settings, recorded, run->ident.world_size);
	return settings_check_world(settings, run->ident.world_size, err) < 0 ? ERR_SHARED : 0;
}

/* Opens the flight recorder's file; training goes on without one. */
static void keep_flight(struct run *run)
{
	struct err err;
	if (flight_file_open(&run->flight_file, run->flight, &run->ident, run->settings.ckpt_dir, &err)
		< 0)
		log_info("the flight recorder of this rank can't be read after the rank is killed: %s",
			err.text);
}

static struct dataset *open_dataset(const struct settings *settings, const char *data,
	const char *labels, struct err *err)
{
	return settings->model == MODEL_GPT2 ? dataset_open_tokens(data, (int)settings->context, err)
										 : dataset_open_table(data, labels, err);
}

static int open_data(struct run *run, struct err *err)
{
	const struct settings *settings = &run->settings;
	run->data = open_dataset(settings, settings->data, settings->labels, err);
	if (!run->data)
		return -1;
	run->sampler = (struct sampler) {
		.seed = (uint64_t)settings->seed,
		.count = dataset_samples(run->data),
		.global_batch = (uint64_t)settings->global_batch,
		.complete = settings->last_batch == LAST_BATCH_PAD,
		.shuffle = settings->order == ORDER_SHUFFLED,
	};
	if (run->sampler.count == 0 || sampler_epoch_steps(&run->sampler) == 0)
		return err_fail(err, EXIT_DATA,
			"data: %s holds %" PRIu64 " samples, fewer than one --global-batch of %lld: give more "
			"data, a smaller batch, or --last-batch pad",
			settings->data, run->sampler.count, (long long)settings->global_batch);
	if (!settings->validate_every)
		return 0;
	run->validation_data =
		open_dataset(settings, settings->validation_data, settings->validation_labels, err);
	if (!run->validation_data)
		return -1;
	if (dataset_samples(run->validation_data) == 0)
		return err_fail(err, EXIT_DATA, "data: %s holds no sample: give more validation data",
			settings->validation_data);
	if (dataset_features(run->validation_data) != dataset_features(run->data))
		return err_fail(err, EXIT_DATA,
			"data: %s has %d columns, %s has %d: give validation data of the same kind",
			settings->validation_data, dataset_features(run->validation_data), settings->data,
			dataset_features(run->data));
	return 0;
}

static uint64_t validation_samples(const struct run *run)
{
	uint64_t all = dataset_samples(run->validation_data);
	uint64_t wanted =
		(uint64_t)run->settings.validate_batches * (uint64_t)run->settings.global_batch;
	return wanted && wanted < all ? wanted : all;
}

static int alloc_state(struct run *run, struct err *err)
{
	const struct tensor_table *tensors = model_tensors(run->model);
	size_t count;
	const struct zero_shard *own = ddp_own(run->ddp, &count);
	return run->settings.ckpt_dir
		? state_alloc_saved(&run->state, run->ops, tensors, own, count, err)
		: state_alloc(&run->state, run->ops, tensors, own, count, err);
}

static struct ddp_config ddp_config_of(const struct run *run)
{
	struct ddp_config config = settings_ddp(&run->settings);
	config.comm = (enum ddp_comm)run->settings.comm;
	config.node = run->ident.node_rank;
	config.nodes = run->nodes;
	return config;
}

static int build_model(struct run *run, struct err *err)
{
	const struct settings *settings = &run->settings;
	const struct model_config config = settings_model(settings, dataset_features(run->data));
	run->model = model_create(&config, err);
	if (!run->model)
		return -1;
	if (settings->bucket_mb == OPT_AUTO)
		run->settings.bucket_mb = ddp_bucket_mb(model_tensors(run->model), run->ident.world_size);
	if (device_ops(run, err) < 0
		|| model_prepare(run->model, run->ops, (int)settings->microbatch, err) < 0)
		return -1;
	run->nodes = calloc((size_t)run->ident.world_size, sizeof *run->nodes);
	return run->nodes ? 0 : err_set(err, "ddp: couldn't compare the ranks: out of memory");
}

static int agree_on_ddp(struct run *run, struct err *err)
{
	const struct ddp_config config = ddp_config_of(run);
	return ddp_agree(run->comm, model_tensors(run->model), &config, run->nodes, err);
}

/* Another rank is lost, and the step with it. */
static bool comm_has_failed(void *comm)
{
	struct err err;
	return comm_check(comm, &err) < 0;
}

static int build_ddp(struct run *run, struct err *err)
{
	const struct settings *settings = &run->settings;
	const struct ddp_config ddp = ddp_config_of(run);
	run->ddp = ddp_create(run->comm, run->ops, model_tensors(run->model), &ddp, err);
	if (!run->ddp || model_join(run->model, run->comm, ddp_order(run->ddp), err) < 0
		|| alloc_state(run, err) < 0)
		return -1;
	model_set_weights_wait(run->model, ddp_wait_weights, run->ddp);
	model_set_abandon(run->model, comm_has_failed, run->comm);
	if (run->validation_data
		&& !(run->validation = validation_create(run->validation_data, run->model, run->comm,
				 validation_samples(run), (int)settings->microbatch, run_vocabulary(run), err)))
		return -1;
	if (settings->sample_every && run->ident.rank == 0
		&& !(run->sample_text = sample_text_open(settings, run->model, err)))
		return -1;
	return 0;
}

static int record_numerics(struct run *run, struct err *err)
{
	run->numerics = numerics_record(&run->settings, run->ops, run->comm);
	return run->numerics ? 0 : err_set(err, "numerics: out of memory");
}

static int open_trace(struct run *run, struct err *err)
{
	const struct settings *settings = &run->settings;
	uint64_t first = run->state.step + 1, last = first + TRACE_DEFAULT_STEPS - 1,
			 steps = (uint64_t)settings->steps;
	if (!settings->trace)
		return 0;
	if (settings->trace_steps) {
		first = (uint64_t)settings->trace_first;
		last = (uint64_t)settings->trace_last;
	}
	run->trace_file = trace_file_open(settings->trace, run->ident.node, first,
		last < steps ? last : steps, run->comm, err);
	run->trace = trace_file_recorder(run->trace_file);
	comm_trace(run->comm, run->trace);
	return run->trace_file ? 0 : -1;
}

static int open_tensorboard(struct run *run, struct err *err)
{
	if (!run->folder || !run->settings.tensorboard)
		return 0;
	run->tensorboard = tensorboard_open(folder_dir(run->folder)->fd, folder_attempt(run->folder),
		run->state.step + 1, err);
	return run->tensorboard ? 0 : -1;
}

/* What a rank sees as its data; and which steps it traces, which must be the same on all ranks,
 * too. */
struct view {
	struct hash128 identity;
	uint64_t files;
	int64_t trace, trace_first, trace_last;
};

/* Checks that all ranks see the same data, or their gradients would not belong together. */
static int compare_data(struct run *run, struct err *err)
{
	const struct settings *settings = &run->settings;
	const struct view mine = { dataset_identity(run->data), dataset_shards(run->data),
		settings->trace != NULL, settings->trace_first, settings->trace_last };
	AUTO_FREE struct view *all = calloc((size_t)run->ident.world_size, sizeof *all);
	if (!all)
		return err_set(err, "data: out of memory");
	if (comm_wait(run->comm, comm_allgather(run->comm, "data identity", &mine, all, sizeof mine),
			err)
		< 0)
		return -1;
	for (int rank = 1; rank < run->ident.world_size; rank++) {
		if (all[rank].trace != all[0].trace || all[rank].trace_first != all[0].trace_first
			|| all[rank].trace_last != all[0].trace_last) {
			err_fail(err, EXIT_USAGE,
				"trace: rank %d has another --trace or --trace-steps than rank 0: start all ranks "
				"with the same options",
				rank);
			return ERR_SHARED;
		}
		if (all[rank].files != all[0].files) {
			err_fail(err, EXIT_DATA,
				"data: rank %d finds %" PRIu64 " files under %s, and rank 0 finds %" PRIu64
				": give all nodes the same files",
				rank, all[rank].files, settings->data, all[0].files);
			return ERR_SHARED;
		}
		if (!hash_equal(all[rank].identity, all[0].identity)) {
			err_fail(err, EXIT_DATA,
				"data: rank %d and rank 0 see different data under %s: give all nodes the same "
				"file",
				rank, settings->data);
			return ERR_SHARED;
		}
	}
	return 0;
}

/* What a rank does by itself, and where all learn whether each could: the call does nothing that
 * waits for others, who would take this rank's status for their own exchange. */
#define STAGE(name, call) status_exchange(run->comm, name, run->ident.node, (call), err)

int prepare(struct run *run, struct err *err)
{
	int rc = meet(run, err);
	if (rc < 0 || (rc = settings_agree(&run->settings, run->comm, err)) < 0)
		return rc;
	run->threads =
		run->settings.threads > 0 ? (int)run->settings.threads : threads_default(&run->ident);
	threads_set(run->threads);
	if ((rc = STAGE("checkpoint directory", open_folder(run, err))) < 0
		|| (rc = choose_slots(run, err)) < 0)
		return rc;
	keep_flight(run);
	if ((rc = STAGE("data", open_data(run, err))) < 0 || (rc = compare_data(run, err)) < 0
		|| (rc = STAGE("model", build_model(run, err))) < 0 || (rc = agree_on_ddp(run, err)) < 0
		|| (rc = STAGE("gradients", build_ddp(run, err))) < 0
		|| (rc = device_attention(run, err)) < 0 || (rc = device_algorithms(run, err)) < 0
		|| (rc = record_numerics(run, err)) < 0
		|| (rc = numerics_agree(run->comm, run->numerics, run->settings.require_identical, err)) < 0
		|| (rc = resume(run, err)) < 0 || (rc = state_share(&run->state, run->comm, err)) < 0)
		return rc;
	if (run_is_finished(run))
		return 0;
	if (device_has_memory(run->ops->device)
		&& (rc = STAGE("memory", state_upload(&run->state, err))) < 0)
		return rc;
	if ((rc = STAGE("tensorboard", open_tensorboard(run, err))) < 0)
		return rc;
	rc = STAGE("trace", open_trace(run, err));
	return rc < 0 ? rc : async_savers_start(run, err);
}
