/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the answers of muster-requeue, which prints them for this purpose. */
#include "config.h"

#include "launch/job_query.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/installed.h"
#include "common/number.h"

#define HELPER "muster-requeue"
#define TIME_MAX 1e12

/* The one line that muster-requeue answers with; false if there is none, or it fails. */
static bool ask(const char *question, uint32_t job, char *answer, size_t size)
{
	char program[PATH_MAX], command[PATH_MAX + 100];
	if (installed_program("libexec", LIBEXECDIR, HELPER, program, sizeof program) < 0
		|| strchr(program, '\''))
		return false;
	snprintf(command, sizeof command, "exec '%s' %s --deadline=4 %u 0 2>/dev/null", program,
		question, job);
	FILE *child = popen(command, "re");
	if (!child)
		return false;
	bool answered = fgets(answer, (int)size, child) != NULL;
	if (answered)
		answer[strcspn(answer, "\n")] = '\0';
	return pclose(child) == 0 && answered;
}

double job_end_time(uint32_t job)
{
	/* Set from Slurm 23.02 on. */
	const char *told = getenv("SLURM_JOB_END_TIME");
	char answer[40];
	double end = 0;
	if (job == 0 || (told && number_real(told, 0, TIME_MAX, &end)))
		return end;
	return ask("--ends", job, answer, sizeof answer) && number_real(answer, 0, TIME_MAX, &end) ? end
																							   : 0;
}

int job_is_running(uint32_t job, struct err *err)
{
	char answer[40];
	if (!ask("--runs", job, answer, sizeof answer))
		return err_set(err, "job state: couldn't ask Slurm about job %u by " HELPER, job);
	return strcmp(answer, "yes") == 0;
}
