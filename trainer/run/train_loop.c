/* SPDX-License-Identifier: Apache-2.0 */
/* The training loop: computes, reduces and updates one step after the other, and does what is due
 * between them. */
#include "trainer/run/train_loop.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "common/auto.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/notice.h"
#include "trainer/comm/status_exchange.h"
#include "trainer/data/feed.h"
#include "trainer/model/graph_trial.h"
#include "trainer/run/scaling_hint.h"
#include "trainer/run/device.h"
#include "trainer/run/report.h"
#include "trainer/state/optimizer.h"

struct loop {
	struct run *run;
	struct feed *feed;
	struct optimizer_config optimizer;
	int fault; /* exit status if this rank can't go on, else 0 */
	struct ddp_result result;
	bool changed;           /* the step changed the weights */
	double validation_loss; /* measured after the step; NAN: not measured */
	bool after_save;        /* the previous step was saved */
	struct scaling_hint hint;
	uint64_t agreed;           /* the last step after which all ranks had the same weights */
	double communicated;       /* comm_busy() when the step began */
	double since;              /* trace: when the current part of the pass began */
	bool last_pass;            /* this is the last microbatch of this rank's last slot */
	struct graph_trial graphs; /* --cuda-graph auto */
};

static struct optimizer_config optimizer_of(const struct settings *settings)
{
	return (struct optimizer_config) {
		.learning_rate = settings->learning_rate,
		.minimal_learning_rate = settings->min_learning_rate,
		.warmup = (uint64_t)settings->warmup_steps,
		.steps = (uint64_t)settings_decay_steps(settings),
		.beta1 = settings->beta1,
		.beta2 = settings->beta2,
		.epsilon = settings->epsilon,
		.weight_decay = settings->weight_decay,
		.clip = settings->clip,
	};
}

static struct feed *start_feed(struct run *run, struct err *err)
{
	const struct settings *settings = &run->settings;
	const struct feed_plan plan = {
		.sampler = run->sampler,
		.vocabulary = run_vocabulary(run),
		.microbatch = (int)settings->microbatch,
		.slot_microbatches = (int)settings->slot_microbatches,
		.first_slot = ddp_first_slot(run->ddp),
		.slots = ddp_slot_count(run->ddp),
		.first_step = run->state.step + 1,
		.last_step = (uint64_t)settings->steps,
	};
	return feed_start(run->data, &plan, err);
}

/* Skips the last `left` microbatches of a slot, but takes part in all that the ranks exchange. */
static void leave_out(struct run *run, int64_t left)
{
	for (; left > 0; left--)
		model_absent(run->model, left == 1 ? ddp_ready : NULL, run->ddp);
	ddp_slot_end(run->ddp, 0);
}

/* This rank's data can't be read. It goes on without gradients, so that all ranks learn of it at
 * the end of the step. */
static void give_up_slot(struct loop *loop, int64_t left, const struct err *err)
{
	if (!loop->fault)
		log_error("step %" PRIu64 ": %s", loop->run->state.step + 1, err->text);
	loop->fault = (int)err->status;
	leave_out(loop->run, left);
}

/* The model's ready callback; each call ends a part of the pass. */
static void part_done(void *arg, int layer)
{
	struct loop *loop = arg;
	struct trace *trace = loop->run->trace;
	if (layer == MODEL_FORWARD_DONE)
		trace_end(trace, loop->since, "forward");
	else
		trace_end(trace, loop->since, "backward of layer %d", layer);
	if (loop->last_pass)
		ddp_ready(loop->run->ddp, layer);
	loop->since = trace_begin(trace);
}

static const struct batch *next_batch(struct loop *loop, struct err *err)
{
	double begin = trace_begin(loop->run->trace);
	const struct batch *batch = feed_next(loop->feed, err);
	trace_end(loop->run->trace, begin, "data");
	return batch;
}

static void end_slot(struct loop *loop, int slot, int64_t valid)
{
	double begin = trace_begin(loop->run->trace);
	ddp_slot_end(loop->run->ddp, valid);
	trace_end(loop->run->trace, begin, "end of slot %d", slot);
}

static void train_slot(struct loop *loop, int slot)
{
	struct run *run = loop->run;
	int64_t microbatches = run->settings.slot_microbatches, valid = 0;
	struct err err = { .status = (enum exit_status)loop->fault };
	float *grads = ddp_slot_grads(run->ddp, slot);
	double *loss = ddp_slot_loss(run->ddp, slot);
	for (int64_t i = 0; i < microbatches; i++) {
		int64_t microbatch_valid;
		flight_begin(run->flight, FLIGHT_DATA, run->state.step + 1, slot);
		const struct batch *batch = loop->fault ? NULL : next_batch(loop, &err);
		if (!batch) {
			give_up_slot(loop, microbatches - i, &err);
			return;
		}
		flight_begin(run->flight, FLIGHT_COMPUTE, run->state.step + 1, slot);
		loop->last_pass = i == microbatches - 1
			&& slot == ddp_first_slot(run->ddp) + ddp_slot_count(run->ddp) - 1;
		loop->since = trace_begin(run->trace);
		model_train(run->model, batch, grads, i > 0, loss, &microbatch_valid,
			loop->last_pass || run->trace ? part_done : NULL, loop);
		valid += microbatch_valid;
	}
	end_slot(loop, slot, valid);
}

/* After a device has failed its results are void, and no rank may use them. */
static void note_device(struct loop *loop)
{
	struct err err;
	if (loop->fault || device_check(loop->run->ops->device, &err) == 0)
		return;
	log_error("step %" PRIu64 ": %s", loop->run->state.step + 1, err.text);
	loop->fault = (int)err.status;
}

/* The exit status with which this rank must end the run; 0 for none. */
static int own_fault(struct loop *loop)
{
	const struct run *run = loop->run;
	note_device(loop);
	if (loop->fault)
		return loop->fault;
	if (run->saver && async_saver_fault(run->saver))
		return async_saver_fault(run->saver);
	return run->folder && folder_lost(run->folder) ? EXIT_FAULT : 0;
}

/* Rank 0 decides for all which steps are saved, and tells them in its control. The last step is
 * saved when the run closes. */
static bool save_is_due(const struct run *run, uint64_t step)
{
	return run->folder && step < (uint64_t)run->settings.steps
		&& save_scheduler_due(&run->scheduler, (int64_t)step, clock_now());
}

/* Whether to compare the weights before this step with the other ranks'. */
static bool check_is_due(const struct loop *loop)
{
	const struct run *run = loop->run;
	uint64_t every = (uint64_t)run->settings.check_replicas, step = run->state.step;
	return every && run->ident.world_size > 1 && step % every == 0 && step != loop->agreed;
}

/* Ends the run if weights differ: memory or a processor has erred, or an update differed between
 * ranks, and no rank can go on from that. */
static int check_replicas(struct loop *loop, struct err *err)
{
	struct run *run = loop->run;
	uint64_t step = run->state.step;
	if (!loop->result.drifted[0]) {
		if (check_is_due(loop))
			loop->agreed = step;
		return 0;
	}
	if (loop->result.drift_here)
		log_error("the weights here differ from those of other ranks after step %" PRIu64, step);
	err_set(err,
		"step %" PRIu64 ": the replicas have drifted apart: after step %" PRIu64
		" the weights of %s differ from those of the other ranks; after step %" PRIu64
		" all were equal: have the memory and the device of that node checked (srun's --exclude "
		"leaves it out), move checkpoints of later steps away, and start again",
		step + 1, step, loop->result.drifted, loop->agreed);
	return ERR_SHARED;
}

/* Ends the run if ranks read the same samples: each rank computes the order of samples, so the
 * program or a processor has erred. */
static int check_samples(const struct loop *loop, uint64_t step, struct err *err)
{
	if (!loop->result.same_samples[0])
		return 0;
	err_set(err,
		"step %" PRIu64 ": ranks read the same samples, where each has its own: %s: this program "
		"or a node errs; the step changed nothing, and checkpoints are good: start "
		"again with another build, or without that node (srun's --exclude)",
		step, loop->result.same_samples);
	return ERR_SHARED;
}

/* A pass has waited for all weights already, but this step may have had none. */
static uint64_t weights_hash(struct run *run)
{
	ddp_wait_weights(run->ddp, 0);
	return state_weights_hash(&run->state);
}

static bool replays(const struct run *run)
{
	return run->settings.comm == DDP_COMM_REPLAY;
}

/* Runs the forward and backward passes and the reduction. */
static int compute(struct loop *loop, uint64_t step, struct err *err)
{
	struct run *run = loop->run;
	int64_t targets = (int64_t)feed_step_samples(&run->sampler, step) * run_positions(run);
	optimizer_begin(&loop->optimizer, step, targets, run->ops->params);
	ops_put_params(run->ops);
	ddp_begin(run->ddp, step);
	int first = ddp_first_slot(run->ddp);
	for (int slot = first; slot < first + ddp_slot_count(run->ddp); slot++) {
		double begin = trace_begin(run->trace);
		if (comm_check(run->comm, err) < 0)
			return -1;
		if (replays(run))
			leave_out(run, run->settings.slot_microbatches);
		else
			train_slot(loop, slot);
		trace_end(run->trace, begin, "slot %d", slot);
	}
	struct ddp_control control = { .step = step,
		.sample_hash = replays(run) ? 0 : feed_hash(loop->feed),
		.stop = notice_signal(),
		.save = save_is_due(run, step),
		.fault = own_fault(loop),
		.waited = scaling_hint_waited(&loop->hint),
		.weights_hash = check_is_due(loop) ? weights_hash(run) : 0 };
	flight_begin(run->flight, FLIGHT_REDUCE, step, -1);
	if (ddp_finish(run->ddp, &control, &loop->result, err) < 0)
		return -1;
	loop->result.exposed += model_waited(run->model);
	if (loop->result.fault) {
		err_fail(err, (enum exit_status)loop->result.fault,
			"step %" PRIu64 ": rank %d can't go on: all ranks end with status %d; nothing is saved "
			"after step %" PRIu64,
			step, loop->result.fault_rank, loop->result.fault, step - 1);
		return ERR_SHARED;
	}
	if (check_replicas(loop, err) < 0 || check_samples(loop, step, err) < 0)
		return ERR_SHARED;
	if (loop->result.valid != targets && !replays(run)) {
		err_fail(err, EXIT_DATA,
			"step %" PRIu64 ": %" PRId64
			" targets were counted where the data should hold %" PRId64,
			step, loop->result.valid, targets);
		return ERR_SHARED;
	}
	return 0;
}

/* Updates the weights; a step that is not finite changes nothing. With --zero 1 it then starts the
 * all-gather of weights. */
static void update(struct loop *loop, uint64_t step)
{
	struct run *run = loop->run;
	double begin = trace_begin(run->trace);
	flight_begin(run->flight, FLIGHT_UPDATE, step, -1);
	loop->changed =
		optimizer_clip(&loop->optimizer, loop->result.loss, loop->result.norm, run->ops->params);
	ops_put_params(run->ops);
	state_update(&run->state, ddp_grads(run->ddp), loop->changed);
	trace_end(run->trace, begin, "update");
	if (loop->changed) {
		ddp_allgather_weights(run->ddp, state_master(&run->state));
		model_settle(run->model, state_master(&run->state));
	}
	model_bind(run->model, state_compute(&run->state), state_master(&run->state));
	run->state.step = step;
}

/* Logs once that the metrics can't be written, and again only after they could be. */
static void note_metrics(struct run *run, int rc, const struct err *err)
{
	if (rc < 0 && !run->metrics_failed)
		log_warn("%s; the lines are kept and written later", err->text);
	run->metrics_failed = rc < 0;
}

static void note_tensorboard(struct run *run, int rc, const struct err *err)
{
	if (rc < 0 && !run->tensorboard_failed)
		log_warn("%s; TensorBoard will not show this step; the training goes on", err->text);
	run->tensorboard_failed = rc < 0;
}

static void advise(struct loop *loop, const struct metrics_step *line)
{
	const struct settings *settings = &loop->run->settings;
	const struct scaling_hint_facts facts = {
		.uneven = line->cost.most > line->cost.least,
		.native = settings->reduction == REDUCTION_NATIVE,
		.bf16 = settings->grad_dtype == GRAD_BF16,
		.zero = settings->zero != 0,
	};
	const struct ddp_result *result = &loop->result;
	const struct scaling_hint_waits waits = { result->waited_most.seconds,
		result->waited_least.seconds, comm_peer(loop->run->comm, result->waited_most.rank),
		comm_peer(loop->run->comm, result->waited_least.rank) };
	char text[SCALING_HINT_LINE];
	if (settings->comm != DDP_COMM_REAL || loop->run->ident.world_size == 1)
		return;
	if (scaling_hint_tell(&loop->hint, &facts, &waits, text))
		log_info("%s", text);
}

static bool sample_is_due(const struct settings *settings, uint64_t step)
{
	return settings->sample_every && step > 0 && step % (uint64_t)settings->sample_every == 0;
}

/* A step after a sample text is not judged, since the other ranks waited for it. */
static void judge_step(struct loop *loop, const struct metrics_step *line)
{
	if (!sample_is_due(&loop->run->settings, line->step - 1))
		scaling_hint_step(&loop->hint, line->milliseconds * 1e-3, line->exposed,
			line->communication);
}

static void tell_step(struct loop *loop, uint64_t step, double seconds)
{
	struct run *run = loop->run;
	struct err err;
	const struct metrics_step line = {
		.step = step,
		.loss = (float)loop->result.loss,
		.norm = (float)loop->result.norm,
		.learning_rate = run->ops->params->learning_rate,
		.tokens_per_second = (double)loop->result.valid / seconds,
		.milliseconds = seconds * 1e3,
		.exposed = loop->result.exposed,
		.communication = comm_busy(run->comm) - loop->communicated,
		.ranks = run->ident.world_size,
		.cost = ddp_cost(run->ddp),
		.skipped = !loop->changed,
		.use = device_use(run, (double)loop->result.valid / seconds),
	};
	if (run->ident.rank != 0) {
		judge_step(loop, &line);
		return;
	}
	report_step(run, &line);
	advise(loop, &line); /* from what the ranks told in this step of earlier steps */
	judge_step(loop, &line);
	if (!run->folder)
		return;
	note_metrics(run, metrics_step(run->metrics, &line, &err), &err);
	note_tensorboard(run, tensorboard_step(run->tensorboard, &line, &err), &err);
	folder_progress(run->folder, step);
	save_scheduler_step(&run->scheduler, seconds, loop->after_save);
}

/* Ends a run whose loss or norm is not finite, unless --on-nonfinite leaves such steps out. */
static int check_finite(struct loop *loop, uint64_t step, struct err *err)
{
	struct run *run = loop->run;
	if (loop->changed || run->settings.on_nonfinite == NONFINITE_SKIP)
		return 0;
	int nonfinite = loop->result.nonfinite;
	const char *tensor = nonfinite < 0 ? NULL : run->state.tensors->rows[nonfinite].name;
	err_set(err,
		"step %" PRIu64 ": not finite: loss %g, gradient norm %g, first in %s%s; this step changed "
		"nothing and nothing was saved: lower --learning-rate (with --change "
		"learning-rate), or leave such steps out with --on-nonfinite skip",
		step, loop->result.loss, loop->result.norm, tensor ? "the gradient of " : "the loss",
		tensor ? tensor : "");
	return ERR_SHARED;
}

static bool validation_is_due(const struct run *run, uint64_t step)
{
	return run->validation && step > 0 && step % (uint64_t)run->settings.validate_every == 0;
}

/* *loss becomes NAN when no validation is due. */
static int validate(struct run *run, uint64_t step, double *loss, struct err *err)
{
	struct err warning;
	*loss = NAN;
	if (!validation_is_due(run, step))
		return 0;
	double begin = trace_begin(run->trace);
	flight_begin(run->flight, FLIGHT_VALIDATE, step, -1);
	int rc = validation_loss(run->validation, loss, err);
	trace_end(run->trace, begin, "validation");
	if (rc < 0)
		return rc;
	if (run->ident.rank == 0)
		report_validation(run, step, (float)*loss);
	if (run->metrics) {
		note_metrics(run, metrics_validation(run->metrics, step, (float)*loss, &warning), &warning);
		note_tensorboard(run,
			tensorboard_validation(run->tensorboard, step, (float)*loss, &warning), &warning);
	}
	return 0;
}

/* On rank 0, while the others wait. A text that can't be written ends no training. */
static void write_sample(struct run *run, uint64_t step)
{
	AUTO_FREE char *line = NULL;
	struct err err;
	if (!run->sample_text || !sample_is_due(&run->settings, step))
		return;
	double begin = trace_begin(run->trace);
	flight_begin(run->flight, FLIGHT_SAMPLE, step, -1);
	const int rc = sample_text_write(run->sample_text, run->ops->device, state_master(&run->state),
		&line, &err);
	trace_end(run->trace, begin, "sample text");
	if (rc < 0) {
		log_warn("step %" PRIu64 ": no sample text: %s; the training goes on", step, err.text);
		return;
	}
	report_sample(run, step, line);
	if (run->metrics)
		note_metrics(run, metrics_sample(run->metrics, step, line, &err), &err);
}

void train_loop_take_saves(struct run *run)
{
	struct save_result saved;
	struct err err;
	while (run->saver && async_saver_take(run->saver, &saved)) {
		folder_saved(run->folder, saved.seconds);
		note_metrics(run, metrics_checkpoint(run->metrics, &saved, &err), &err);
		note_tensorboard(run, tensorboard_checkpoint(run->tensorboard, &saved, &err), &err);
		if (save_scheduler_saved(&run->scheduler, saved.stall, saved.seconds,
				folder_mean_time_between(run->folder)))
			log_info("checkpoint: one every %.0f s from now on: a save makes a step %.3f s longer "
					 "and takes %.2f s, and the run is interrupted every %.1f h",
				run->scheduler.interval, save_scheduler_cost(&run->scheduler), run->scheduler.flush,
				folder_mean_time_between(run->folder) / 3600);
	}
}

static void save(struct loop *loop)
{
	struct run *run = loop->run;
	const struct save_step losses = { .loss = loop->result.loss,
		.validation_loss = loop->validation_loss };
	loop->after_save = true;
	if (!run->saver)
		return;
	save_scheduler_save(&run->scheduler, clock_now());
	double begin = trace_begin(run->trace);
	flight_begin(run->flight, FLIGHT_SAVE, run->state.step, -1);
	async_saver_save(run->saver, &run->state, &losses, false);
	trace_end(run->trace, begin, "hand-over of the save");
}

/* Waits for all weights where something reads them after this step; the wait counts as the
 * step's. */
static int complete_weights(struct loop *loop, uint64_t step, struct err *err)
{
	struct run *run = loop->run;
	bool last = step == (uint64_t)run->settings.steps || loop->result.stop;
	bool narrowed = run->settings.zero
		&& device_has_memory(run->ops->device); /* passes read a cast of all weights */
	if (!last && !narrowed && !loop->result.save && !validation_is_due(run, step)
		&& !sample_is_due(&run->settings, step))
		return 0;
	if (ddp_whole(run->ddp, &loop->result.exposed, err) < 0)
		return -1;
	if (narrowed)
		state_allgather_weights(&run->state);
	return 0;
}

/* Ops on the CPU can't be captured. */
static void use_graphs(struct loop *loop)
{
	int graph = loop->run->settings.cuda_graph;
	model_use_graphs(loop->run->model,
		graph == GRAPH_ON || (graph == GRAPH_AUTO && graph_trial_uses(&loop->graphs)));
}

static void try_graphs(struct loop *loop, double seconds)
{
	const struct run *run = loop->run;
	const struct graph_trial *trial = &loop->graphs;
	if (run->settings.cuda_graph != GRAPH_AUTO || !run->ops->device->capture
		|| !graph_trial_step(&loop->graphs, seconds))
		return;
	if (run->ident.rank == 0)
		log_info("graphs: a step took %.2f ms without CUDA graphs and %.2f ms with them: this rank "
				 "goes on %s (--cuda-graph)",
			trial->least[0] * 1e3, trial->least[1] * 1e3,
			graph_trial_uses(trial) ? "with them" : "without");
}

static int one_step(struct loop *loop, uint64_t step, struct err *err)
{
	struct run *run = loop->run;
	if (trace_file_step(run->trace_file, step, err) < 0)
		return -1;
	double began = clock_now(), begin = trace_begin(run->trace);
	loop->validation_loss = NAN;
	loop->communicated = comm_busy(run->comm);
	use_graphs(loop);
	int rc = compute(loop, step, err);
	if (rc < 0)
		return rc;
	update(loop, step);
	if (complete_weights(loop, step, err) < 0 || device_check(run->ops->device, err) < 0)
		return -1;
	trace_end(run->trace, begin, "step %" PRIu64, step);
	double seconds = clock_now() - began;
	try_graphs(loop, seconds);
	tell_step(loop, step, seconds);
	loop->after_save = false;
	train_loop_take_saves(loop->run);
	rc = check_finite(loop, step, err);
	/* A notice leaves little time: the next attempt does this step's validation and sample text
	 * when it starts. */
	bool stopping = loop->result.stop && step < (uint64_t)run->settings.steps;
	if (rc == 0 && !stopping)
		rc = validate(run, step, &loop->validation_loss, err);
	if (rc == 0 && !stopping)
		write_sample(run, step);
	if (rc == 0 && !stopping && loop->result.save)
		save(loop);
	if (rc == 0 && !stopping)
		rc = trace_file_finish(run->trace_file, step, false, err);
	return rc;
}

int train_loop(struct run *run, struct train_end *end, struct err *err)
{
	struct loop loop = { .run = run,
		.optimizer = optimizer_of(&run->settings),
		.agreed = run->state.step };
	uint64_t steps = (uint64_t)run->settings.steps;
	*end = (struct train_end) { .losses = { .loss = NAN, .validation_loss = NAN } };
	model_bind(run->model, state_compute(&run->state), state_master(&run->state));
	int rc = validate(run, run->state.step, &loop.validation_loss, err);
	if (rc < 0)
		return rc;
	write_sample(run, run->state.step);
	loop.feed = start_feed(run, err);
	if (!loop.feed)
		return -1;
	run->began = clock_now();
	run->began_step = run->state.step;
	save_scheduler_begin(&run->scheduler, &run->settings.schedule, run->began);
	while (rc == 0 && run->state.step < steps && !end->stop) {
		rc = one_step(&loop, run->state.step + 1, err);
		end->losses = (struct save_step) { .loss = loop.result.loss,
			.validation_loss = loop.validation_loss };
		end->stop = run->state.step < steps ? loop.result.stop : 0;
	}
	feed_stop(loop.feed);
	return rc;
}
