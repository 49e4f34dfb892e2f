/* SPDX-License-Identifier: Apache-2.0 */
/* A job's checkpoint service on this node, as root handles it: started before the job's first step
 * and outside all steps, and asked to finish after the last one has ended. */
#ifndef MUSTER_JOB_SERVICE_H
#define MUSTER_JOB_SERVICE_H

#include <stdint.h>
#include <sys/types.h>

#include "common/err.h"
#include "plugin/job_folder.h"

/* All borrowed. */
struct job_service {
	const char *program; /* muster-ckptd */
	const char *run;     /* where the jobs' folders are */
	const char *requeue; /* muster-requeue, which the service asks whether its job still exists */
	const char *conf;    /* the service's SLURM_CONF; NULL: none */
	uint32_t job;
	int attempt; /* -1: unknown; the service then does not ask */
	uid_t uid;
	gid_t gid;
	int drain; /* seconds that the end may take; -1: kill it at once */
};

/* Receives one line to log. */
typedef void job_service_say(void *arg, const char *line);

/* Starts the service as the job's user, with the groups from the node's user database, and waits a
 * few seconds until it listens. A service that already runs for this attempt is kept; one that an
 * earlier attempt left is finished and removed. `say` gets warnings. Returns 0 with *service, or -1
 * if there is no service; nothing is left of it then. */
int job_service_start(const struct job_service *plan, struct process *service, job_service_say *say,
	void *arg, struct err *err);

/* Has the service finish what was handed over to it, for at most `drain` seconds and 14 more, and
 * end. Then removes the job's folder. `say` gets a line for each thing that is lost. Returns 1 if
 * there was a service, 0 if not, -1 on another error; even then nothing is left except what the
 * message names. */
int job_service_finish(const struct job_service *plan, job_service_say *say, void *arg,
	struct err *err);

#endif
