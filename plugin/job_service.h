/* SPDX-License-Identifier: Apache-2.0 */
/* The checkpoint service of one job on this node, as root sees it: started before the job's first
 * step, outside all of them, and asked to finish when the last one has ended. */
#ifndef MUSTER_JOB_SERVICE_H
#define MUSTER_JOB_SERVICE_H

#include <stdint.h>
#include <sys/types.h>

#include "common/err.h"
#include "plugin/job_folder.h"

/* Borrowed. */
struct job_service {
	const char *program; /* muster-ckptd */
	const char *run;     /* where the jobs' folders are */
	const char *requeue; /* muster-requeue, which is asked whether the job is still there */
	const char *conf;    /* SLURM_CONF of the service; NULL: none */
	uint32_t job;
	int attempt; /* -1: not known; then the job is not asked after */
	uid_t uid;
	gid_t gid;
	int drain; /* seconds that the end may take; -1: it is killed at once */
};

/* What is to be told, line by line. */
typedef void job_service_say(void *arg, const char *line);

/* Starts it, as the job's user with the groups that the node's database gives him, and waits a few
 * seconds until it listens. One that runs already for this attempt is kept; what an earlier attempt
 * has left is finished and removed. `say` gets what is worth knowing though all is well. Returns 0
 * with *service, -1 when no service is there; then nothing is left of it. */
int job_service_start(const struct job_service *plan, struct process *service, job_service_say *say,
	void *arg, struct err *err);

/* Has it finish what was handed over to it, for at most `drain` seconds and 14 more, and end; then
 * removes the job's folder. `say` gets a line for each thing that is lost. Returns 1 when there was
 * a service, 0 when there was none, -1 when something else went wrong, also then with nothing left
 * but what the message says. */
int job_service_finish(const struct job_service *plan, job_service_say *say, void *arg,
	struct err *err);

#endif
