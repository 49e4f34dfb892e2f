/* SPDX-License-Identifier: Apache-2.0 */
/* All that lives during one attempt. prepare.c makes it stage by stage; the loop, resume and the
 * report use it. */
#ifndef MUSTER_RUN_H
#define MUSTER_RUN_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "checkpoint/attempt/folder.h"
#include "common/ident.h"
#include "launch/rdzv.h"
#include "order/sampler.h"
#include "trainer/comm/comm.h"
#include "trainer/data/dataset.h"
#include "trainer/ddp/ddp.h"
#include "trainer/model/model.h"
#include "trainer/ops/gpu.h"
#include "trainer/ops/ops.h"
#include "trainer/run/metrics.h"
#include "trainer/run/sample_text.h"
#include "trainer/run/save_scheduler.h"
#include "trainer/run/settings.h"
#include "trainer/run/tensorboard.h"
#include "trainer/run/trace_file.h"
#include "trainer/run/validate.h"
#include "trainer/state/async_saver.h"
#include "trainer/state/state.h"
#include "telemetry/flight_files.h"

struct run {
	struct settings settings;
	struct ident ident;
	struct rdzv *rdzv;
	struct comm *comm;
	struct flight_recorder *flight; /* records where this rank stands */
	struct flight_file flight_file; /* the recorder's file */
	int threads;
	bool on_gpu;     /* false: on the CPU */
	bool has_driver; /* this node has a CUDA driver */
	struct gpu gpu;
	uint64_t gpu_available; /* bytes of GPU memory that were free at the start */

	struct dataset *data, *validation_data;
	struct sampler sampler;
	struct ops *ops;
	struct model *model;
	int *nodes; /* [world_size] the ranks' */
	struct ddp *ddp;
	struct validation *validation; /* NULL without validation */
	struct state state;
	double began;        /* clock_now() at the start of this attempt's first step */
	uint64_t began_step; /* steps that were done then */
	json_t *numerics;
	struct trace_file *trace_file; /* NULL without --trace */
	struct trace *trace;

	struct sample_text *sample_text; /* only on rank 0 with --sample-every, else NULL */

	/* only on rank 0 with --ckpt-dir, else NULL */
	struct folder *folder;
	struct metrics *metrics;
	struct tensorboard *tensorboard; /* NULL without --tensorboard, too */
	struct save_scheduler scheduler;
	bool metrics_failed;     /* the last line could not be written, and that was logged */
	bool tensorboard_failed; /* the same of its last event */

	/* only on designated ranks with --ckpt-dir, else NULL; the records also on rank 0 */
	struct async_saver *saver;
	struct ckpt_dir ckpt_dir;                       /* rank 0: the folder's */
	bool ckpt_dir_opened;                           /* opened by this rank itself */
	char *token;                                    /* of the directory's owner */
	char *config_json, *numerics_json, *model_json; /* what every checkpoint records */
};

/* Whether the last step is done. */
static inline bool run_is_finished(const struct run *run)
{
	return run->state.step >= (uint64_t)run->settings.steps;
}

/* Number of tokens or classes. */
static inline int run_vocabulary(const struct run *run)
{
	return (
		int)(run->settings.model == MODEL_GPT2 ? run->settings.vocabulary : run->settings.classes);
}

/* Number of targets of a sample. */
static inline int run_positions(const struct run *run)
{
	return run->settings.model == MODEL_GPT2 ? (int)run->settings.context : 1;
}

#endif
