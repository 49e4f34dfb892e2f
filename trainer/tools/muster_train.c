/* SPDX-License-Identifier: Apache-2.0 */
/* muster-train runs one attempt of a training, from the command line to the exit status. */
#include "config.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/auto.h"
#include "common/clock.h"
#include "common/descriptors.h"
#include "common/log.h"
#include "common/notice.h"
#include "common/progress.h"
#include "launch/requeue_ask.h"
#include "launch/spot_watch.h"
#include "trainer/comm/status_exchange.h"
#include "trainer/run/prepare.h"
#include "trainer/run/report.h"
#include "trainer/run/run.h"
#include "trainer/run/flight_report.h"
#include "trainer/run/train_loop.h"
#include "trainer/run/world_plan.h"

/* In which ranks that lost one tell their reason: at the first end the launcher ends the others. */
#define LEAVE_SECONDS 2.0

/* This process's rank as the launcher gave it, unchecked; NULL without a launcher. */
static const char *launched_as(void)
{
	static const char *const names[] = { "PMIX_RANK", "SLURM_PROCID", "RANK" };
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		if (getenv(names[i]))
			return getenv(names[i]);
	return NULL;
}

/* Reports an error that all ranks find alike before they have met: only rank 0 logs it. srun ends
 * all tasks when the first one fails, even tasks that it has hardly started. So rank 0 leaves only
 * after the others had time to start, and they leave after it, at srun's SIGTERM. */
static void speak_for_all(bool speaker, bool alone, const struct err *err)
{
	struct deadline leave = deadline_in(speaker ? 1 : 2);
	if (speaker)
		log_error("%s", err->text);
	while (!alone && (speaker || !notice_signal()) && deadline_sleep(leave, 0.05))
		;
}

/* Whether this process speaks for all before they have met. */
static bool is_speaker(void)
{
	const char *rank = launched_as();
	return !rank || strcmp(rank, "0") == 0;
}

static int usage_error(const struct err *err)
{
	speak_for_all(is_speaker(), !launched_as(), err);
	return (int)err->status;
}

/* Rank 0's part of closing the run: the last save, and the records. Returns the exit status of all
 * ranks. */
static int close_folder(struct run *run, const struct train_end *end)
{
	struct err err = { 0 };
	uint64_t step = run->state.step;
	int status = end->stop ? EXIT_REQUEUE : EXIT_OK;
	const char *why = end->stop ? notice_name(end->stop) : "finished";
	if (!run->folder) {
		if (end->stop)
			log_warn("%s: stopped after step %" PRIu64
					 "; nothing was saved, since there is no --ckpt-dir",
				why, step);
		return status;
	}
	if (end->stop) {
		log_info("%s: all ranks stop after step %" PRIu64 " and save", why, step);
		if (folder_notice(run->folder, end->stop, &err) < 0)
			log_warn("checkpoint directory: couldn't record the notice: %s", err.text);
	}
	async_saver_save(run->saver, &run->state, &end->losses, true);
	if (async_saver_wait(run->saver, step, &err) < 0) {
		log_error("step %" PRIu64 " could not be saved: %s", step, err.text);
		status = async_saver_fault(run->saver) ? async_saver_fault(run->saver) : EXIT_LOST;
		why = "the last save failed";
	}
	train_loop_take_saves(run);
	if (folder_end(run->folder, step, why, status, &err) < 0)
		log_warn("checkpoint directory: couldn't record the end: %s", err.text);
	requeue_ask(&run->ident, status);
	return status;
}

/* The other designated ranks' part: rank 0 learns of their failures through the services. */
static void close_part(struct run *run, const struct train_end *end)
{
	struct err err = { 0 };
	if (!run->saver)
		return;
	async_saver_save(run->saver, &run->state, &end->losses, true);
	if (async_saver_wait(run->saver, run->state.step, &err) < 0)
		log_error("step %" PRIu64 " could not be saved: %s", run->state.step, err.text);
}

/* No rank leaves before the last save is durable, since srun would end the others at the first bad
 * exit. Rank 0 tells its status, good or bad, the same way. */
static int close_run(struct run *run, const struct train_end *end, struct err *err)
{
	AUTO_FREE void *value = NULL;
	size_t size;
	int32_t status = 0;
	flight_begin(run->flight, FLIGHT_CLOSE, run->state.step, -1);
	if (run->ident.rank == 0) {
		status = close_folder(run, end);
		if (rdzv_put(run->rdzv, "closing", &status, sizeof status, err) < 0)
			return -1;
	} else {
		close_part(run, end);
	}
	/* Rank 0 may also wait for the save before the last one. */
	if (rdzv_fence(run->rdzv, 2 * run->settings.save_timeout + run->settings.rdzv_timeout, err) < 0)
		return -1;
	if (rdzv_get(run->rdzv, 0, "closing", &value, &size, run->settings.rdzv_timeout, err) < 0)
		return -1;
	if (size != sizeof status)
		return err_set(err, "closing: rank 0 sent %zu bytes instead of its status", size);
	memcpy(&status, value, sizeof status);
	return status;
}

/* Finishes the trace of a run that ended before the last traced step. It comes after the save,
 * which is more urgent. */
static void end_trace(struct run *run)
{
	struct err err;
	if (trace_file_finish(run->trace_file, run->state.step, true, &err) < 0)
		log_warn("trace: nothing was written: %s", err.text);
}

static int finished_already(const struct run *run)
{
	if (!run_is_finished(run))
		return 0;
	if (run->ident.rank == 0) {
		struct err err;
		log_info("the run in %s is finished: step %" PRIu64
				 " of %lld is saved; nothing is left to do",
			run->settings.ckpt_dir, run->state.step, (long long)run->settings.steps);
		if (folder_end(run->folder, run->state.step, "finished already", EXIT_OK, &err) < 0)
			log_warn("checkpoint directory: couldn't record the end: %s", err.text);
	}
	return 1;
}

static void release(struct run *run, bool orderly)
{
	async_saver_stop(run->saver);
	metrics_close(run->metrics);
	tensorboard_close(run->tensorboard);
	folder_close(run->folder, true);
	if (run->ckpt_dir_opened)
		ckpt_dir_close(&run->ckpt_dir);
	if (!orderly)
		return; /* a broken communicator's threads may be anywhere; the exit of the process ends
				   them */
	validation_destroy(run->validation);
	sample_text_close(run->sample_text);
	ddp_destroy(run->ddp);
	free(run->nodes);
	comm_close(run->comm);
	flight_file_remove(&run->flight_file);
	flight_destroy(run->flight);
	trace_file_close(run->trace_file);
	state_free(&run->state);
	model_destroy(run->model);
	if (run->ops)
		run->ops->destroy(run->ops);
	if (run->validation_data)
		dataset_close(run->validation_data);
	if (run->data)
		dataset_close(run->data);
	json_decref(run->numerics);
	free(run->token);
	free(run->config_json);
	free(run->numerics_json);
	free(run->model_json);
	settings_free(&run->settings);
}

/* Logs and records the error, and tells the peers if they can be reached. Ends the process. */
static int fail(struct run *run, int rc, const struct err *err)
{
	struct err ignored;
	bool shared = rc == ERR_SHARED;
	if (shared)
		log_set_tag("%s", ""); /* all ranks have the error; the text names the rank at fault */
	else if (run->comm && err->status == EXIT_LOST)
		flight_report(run); /* before the reason: the last line of the rank that fails first is what
							   srun's user sees */
	if (shared && !run->comm)
		speak_for_all(run->ident.rank == 0, run->ident.world_size == 1, err);
	else if (!shared || run->ident.rank == 0)
		log_error("%s", err->text);
	if (run->folder)
		folder_end(run->folder, run->state.step, err->text, (int)err->status, &ignored);
	if (run->comm && !shared)
		comm_abort(run->comm, err->text);
	if (err->status == EXIT_LOST && run->ident.rank == 0)
		requeue_ask(&run->ident, EXIT_LOST);
	release(run, shared);
	if (err->status == EXIT_LOST && !shared && run->comm)
		comm_hang_up(run->comm, LEAVE_SECONDS);
	else if (err->status == EXIT_LOST && !shared && run->ident.world_size > 1)
		deadline_sleep(deadline_in(LEAVE_SECONDS), LEAVE_SECONDS);
	rdzv_close(run->rdzv, shared);
	fflush(NULL);
	_exit((int)err->status);
}

static void tell_next(const struct run *run, int status)
{
	const char *dir = run->settings.ckpt_dir;
	if (run->ident.rank != 0 || !dir)
		return;
	if (status != EXIT_OK)
		progress_next("the same command again goes on after step %" PRIu64, run->state.step);
	else if (run->settings.model == MODEL_GPT2)
		progress_next("muster-generate %s, or muster-report %s", dir, dir);
	else
		progress_next("muster-report %s", dir);
}

int main(int argc, char **argv)
{
	static struct run run;
	struct err err = { 0 };
	struct train_end end = { 0 };
	static const char *const isas[] = { "auto", "avx512", "avx2", "default" };
	descriptors_raise();
	log_keep_last();
	signal(SIGPIPE, SIG_IGN); /* the training must outlive a reader of our output */
	int rc = notice_take(true, &err);
	if (rc == 0)
		rc = settings_parse(&run.settings, argc, argv, is_speaker() ? stdout : NULL, &err);
	if (rc != 0)
		return rc < 0 ? usage_error(&err) : EXIT_OK;
	if (run.settings.plan)
		return world_plan_print(&run.settings, is_speaker() ? stdout : NULL, &err) < 0
			? usage_error(&err)
			: EXIT_OK;
	log_set_level((enum log_level)run.settings.log_level);
	rc = ops_cpu_pin_isa(isas[run.settings.cpu_isa], &err);
	if (rc == 0)
		rc = prepare(&run, &err);
	if (rc < 0)
		return fail(&run, rc, &err);
	int status = EXIT_OK;
	if (!finished_already(&run)) {
		if ((rc = report_start(&run, &err)) < 0 || (rc = train_loop(&run, &end, &err)) < 0
			|| (status = rc = close_run(&run, &end, &err)) < 0)
			return fail(&run, rc, &err);
		end_trace(&run);
	}
	spot_watch_end(status == EXIT_REQUEUE && run.settings.ckpt_dir);
	tell_next(&run, status);
	release(&run, true);
	rdzv_close(run.rdzv, 1);
	return status;
}
