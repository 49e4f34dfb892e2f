/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the answers of muster-requeue, which prints them for this purpose. */
#include "config.h"

#include "launch/job_query.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "common/number.h"
#include "launch/requeue_program.h"

#define TIME_MAX 1e12

/* The one line that muster-requeue answers with. Returns -1 if there is none, or it fails. */
static int ask(const char *question, uint32_t job, char *answer, size_t size, struct err *err)
{
	char program[PATH_MAX], command[PATH_MAX + 100];
	if (requeue_program_find(program, sizeof program, err) < 0)
		return -1;
	snprintf(command, sizeof command, "exec '%s' %s --deadline=4 %u 0 2>/dev/null", program,
		question, job);
	FILE *child = strchr(program, '\'') ? NULL : popen(command, "re");
	bool answered = child && fgets(answer, (int)size, child) != NULL;
	int status = child ? pclose(child) : -1;
	if (child && requeue_program_began(program, status, err) < 0)
		return -1;
	if (!answered || status != 0)
		return err_set(err, "job state: couldn't ask Slurm about job %u by %.300s", job, program);
	answer[strcspn(answer, "\n")] = '\0';
	return 0;
}

double job_end_time(uint32_t job)
{
	/* Set from Slurm 23.02 on. */
	const char *told = getenv("SLURM_JOB_END_TIME");
	char answer[40];
	struct err err;
	double end = 0;
	if (job == 0 || (told && number_real(told, 0, TIME_MAX, &end)))
		return end;
	if (ask("--ends", job, answer, sizeof answer, &err) < 0) {
		if (err.status == EXIT_USAGE)
			log_warn("%s", err.text);
		return 0;
	}
	return number_real(answer, 0, TIME_MAX, &end) ? end : 0;
}

int job_is_running(uint32_t job, struct err *err)
{
	char answer[40];
	if (ask("--runs", job, answer, sizeof answer, err) < 0)
		return -1;
	return strcmp(answer, "yes") == 0;
}
