/* SPDX-License-Identifier: Apache-2.0 */
/* The count of attempts in vain is in the job's comment: nothing else follows a job from node to
 * node. */
#include "config.h"

#include "slurm/breaker.h"

#include <sys/stat.h>

#include "common/auto.h"
#include "common/clock.h"

#define WRITE_TRIES 5     /* when other nodes overwrite the comment at the same moment */
#define WRITE_SECONDS 0.1 /* at most, from reading a job to writing its comment */
/* Seconds to wait until a node that knows of progress has said so: Slurm kills its tasks first, and
 * it waits for earlier notes. */
#define WORD_SECONDS 3.0

static bool has_progressed(const struct breaker *breaker, const struct requeue_job *job,
	int attempt)
{
	struct stat st;
	if (breaker->progressed)
		return true;
	return breaker->progress && job->attempt == attempt && stat(breaker->progress, &st) == 0
		&& (double)st.st_mtim.tv_sec + (double)st.st_mtim.tv_nsec * 1e-9 > job->began;
}

static bool is_known(const char *comment, int attempt)
{
	return requeue_is_counted(comment, attempt) && requeue_vain(comment, attempt) == 0;
}

/* Loads the job again, since other nodes write its comment too. */
static int look_again(struct requeue_job *job, struct err *err)
{
	struct requeue_job now;
	if (requeue_load(job->id, &now, err) < 0)
		return -1;
	requeue_clear(job);
	*job = now;
	return 0;
}

static int write_count(struct requeue_job *job, int vain, int attempt, struct err *err)
{
	AUTO_FREE char *comment = requeue_count(job->comment, vain, attempt);
	if (!comment)
		return err_set(err, "breaker: out of memory");
	if (requeue_set_comment(job, comment, err) < 0)
		return -1;
	deadline_sleep(deadline_in(WRITE_SECONDS), WRITE_SECONDS);
	return look_again(job, err);
}

int breaker_tell(const struct breaker *breaker, struct requeue_job *job, int attempt,
	struct err *err)
{
	bool may_count = job->state == REQUEUE_RUNNING || job->state == REQUEUE_WAITING;
	if (breaker->seconds < 0 || !may_count || requeue_is_counted(job->comment, attempt + 1)
		|| !has_progressed(breaker, job, attempt))
		return 0;
	for (int i = 0; i < WRITE_TRIES && !is_known(job->comment, attempt); i++)
		if (write_count(job, 0, attempt, err) < 0)
			return -1;
	return 0;
}

int breaker_count(const struct breaker *breaker, struct requeue_job *job, int attempt,
	struct err *err)
{
	if (breaker->seconds < 0 || clock_wall() - job->began > breaker->seconds
		|| has_progressed(breaker, job, attempt))
		return 0;
	for (int i = 0; i < WRITE_TRIES && !requeue_is_counted(job->comment, attempt); i++)
		if (write_count(job, requeue_vain(job->comment, attempt), attempt, err) < 0)
			return -1;
	if (requeue_vain(job->comment, attempt) < REQUEUE_VAIN_MOST)
		return 0;
	deadline_sleep(deadline_in(WORD_SECONDS), WORD_SECONDS);
	if (look_again(job, err) < 0)
		return -1;
	return requeue_vain(job->comment, attempt) >= REQUEUE_VAIN_MOST;
}
