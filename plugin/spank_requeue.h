/* SPDX-License-Identifier: Apache-2.0 */
/* In slurmstepd: asks for the job's requeue, or says that it does not come back, when a task has
 * ended otherwise than with 0. */
#ifndef MUSTER_SPANK_REQUEUE_H
#define MUSTER_SPANK_REQUEUE_H

#include <slurm/spank.h>

#include "plugin/spank_args.h"

/* What srun's user is to hear of an end. */
enum spank_requeue_telling {
	SPANK_REQUEUE_TELL_ALL,  /* which rank it was, and what becomes of the job */
	SPANK_REQUEUE_TELL_JOB,  /* srun names the first rank itself, where the job ran when the rank
								failed: the helper then has a line */
	SPANK_REQUEUE_TELL_NONE, /* it was a result: no failure, and the job does not stay or go for it
							  */
};

/* Before the node's first task: other steps of the job see by it that a larger one runs. */
void spank_requeue_begin(spank_t spank, const struct spank_args *args);

/* When the node's last task has ended. */
void spank_requeue_end(spank_t spank, const struct spank_args *args);

/* In the batch step: before the script begins, and when it has ended. What has no answer by then,
 * because the controller was away or is slow, is asked for until there is one; the job runs
 * meanwhile. */
void spank_requeue_batch_begin(spank_t spank, const struct spank_args *args);
void spank_requeue_batch_end(spank_t spank, const struct spank_args *args);

/* For the first of the node's tasks that ends so, with its wait status and the time of its end. */
void spank_requeue_ask(spank_t spank, const struct spank_args *args, int status, double when,
	enum spank_requeue_telling telling);

#endif
