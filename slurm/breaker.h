/* SPDX-License-Identifier: Apache-2.0 */
/* Breaks crash loops of any program. An attempt is in vain if it failed by itself, early and
 * without progress; after REQUEUE_VAIN_MOST such attempts in a row the job does not come back. */
#ifndef MUSTER_BREAKER_H
#define MUSTER_BREAKER_H

#include <stdbool.h>

#include "common/err.h"
#include "slurm/requeue.h"

struct breaker {
	double seconds;       /* an attempt that ran longer was not in vain; negative: don't count */
	bool progressed;      /* a task of this node has made progress */
	const char *progress; /* a file or folder that changes with progress; NULL: none is known */
};

/* Both functions may load the job again, which updates *job. */

/* If this node knows of progress, tells the other nodes in the job's comment. */
int breaker_tell(const struct breaker *breaker, struct requeue_job *job, int attempt,
	struct err *err);

/* Counts an attempt that still runs and has failed by itself. Returns 0 if the job may come back, 1
 * if it may not, -1 if the attempt couldn't be counted. */
int breaker_count(const struct breaker *breaker, struct requeue_job *job, int attempt,
	struct err *err);

#endif
