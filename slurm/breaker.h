/* SPDX-License-Identifier: Apache-2.0 */
/* The breaker of crash loops, for every program: a job whose attempts fail by themselves, early and
 * without progress, comes back REQUEUE_VAIN_MOST - 1 times. */
#ifndef MUSTER_BREAKER_H
#define MUSTER_BREAKER_H

#include <stdbool.h>

#include "common/err.h"
#include "slurm/requeue.h"

struct breaker {
	double
		seconds; /* an attempt that ran for longer was not in vain; negative: nothing is counted */
	bool progressed;      /* a task of this node has made progress */
	const char *progress; /* a file or folder that progress changes; NULL: none is known */
};

/* Both look at the job anew where that takes them time: *job is then how it stands. */

/* Lets the other nodes know, in the job's comment, of the progress that this one knows of. */
int breaker_tell(const struct breaker *breaker, struct requeue_job *job, int attempt,
	struct err *err);

/* Counts the attempt, which still runs and has failed by itself. Returns 0 when the job may come
 * back, 1 when it may not, -1 when it couldn't be counted. */
int breaker_count(const struct breaker *breaker, struct requeue_job *job, int attempt,
	struct err *err);

#endif
