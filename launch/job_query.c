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

static bool parse_times(const char *text, struct job_times *times)
{
	char words[3][32];
	int end = 0;
	return sscanf(text, "%31s %31s %31s%n", words[0], words[1], words[2], &end) == 3 && !text[end]
		&& number_real(words[0], 0, TIME_MAX, &times->submitted)
		&& number_real(words[1], 0, TIME_MAX, &times->began)
		&& number_real(words[2], 0, TIME_MAX, &times->ends);
}

struct job_times job_times(uint32_t job)
{
	/* Set from Slurm 23.02 on. */
	const char *told = getenv("SLURM_JOB_END_TIME");
	struct job_times times = { 0 };
	char answer[100];
	struct err err;
	if (job == 0)
		return times;
	if (ask("--times", job, answer, sizeof answer, &err) < 0) {
		if (err.status == EXIT_USAGE)
			log_warn("%s", err.text);
	} else if (!parse_times(answer, &times)) {
		times = (struct job_times) { 0 };
	}
	if (times.ends == 0 && told && !number_real(told, 0, TIME_MAX, &times.ends))
		times.ends = 0;
	return times;
}

double job_ends(uint32_t job)
{
	return job_times(job).ends;
}

int job_is_running(uint32_t job, struct err *err)
{
	char answer[40];
	if (ask("--runs", job, answer, sizeof answer, err) < 0)
		return -1;
	return strcmp(answer, "yes") == 0;
}
