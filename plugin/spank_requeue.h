/* SPDX-License-Identifier: Apache-2.0 */
/* In slurmstepd: when a task has ended with a status other than 0, asks for the job's requeue or
 * records that the job does not come back. */
#ifndef MUSTER_SPANK_REQUEUE_H
#define MUSTER_SPANK_REQUEUE_H

#include <slurm/spank.h>
#include <stdbool.h>

#include "plugin/spank_args.h"

/* What srun's user is told about an end. */
enum spank_requeue_telling {
	SPANK_REQUEUE_TELL_ALL,  /* which rank it was, and what becomes of the job */
	SPANK_REQUEUE_TELL_JOB,  /* what becomes of the job: srun names the rank, if the job ran then */
	SPANK_REQUEUE_TELL_NONE, /* nothing: it was a result, on which the job's fate does not depend */
};

/* Before the node's first task: lets other steps of the job see that a larger one runs. */
void spank_requeue_begin(spank_t spank, const struct spank_args *args);

/* When the node's last task has ended. */
void spank_requeue_end(spank_t spank, const struct spank_args *args);

/* In the batch step: before the script begins, and after it has ended. A request without an answer
 * by then, because the controller was away or slow, is repeated until there is one; the job runs
 * meanwhile. A job whose script was lost is asked for, too. */
void spank_requeue_batch_begin(spank_t spank, const struct spank_args *args);
void spank_requeue_batch_end(spank_t spank, const struct spank_args *args);

/* After the end of the batch step's task: whether the script never began, since its file was gone.
 * slurmd removes the scripts of jobs that don't run on its node, and may take one that is about to
 * begin for such a job (doc/slurm-releases.md). The task then ends with the error of execve. */
bool spank_requeue_lost_script(spank_t spank);

/* For the node's first task that ends this way, with its wait status and the time of its end. */
void spank_requeue_ask(spank_t spank, const struct spank_args *args, int status, double when,
	enum spank_requeue_telling telling);

#endif
