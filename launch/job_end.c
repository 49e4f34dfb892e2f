/* SPDX-License-Identifier: Apache-2.0 */
/* From Slurm 23.02 on a variable says it. A child speaks to the controller: libslurm may end its process, which must not be ours. */
#include "config.h"

#include "launch/job_end.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/number.h"

#define MOST 1e12

double job_end_time(uint32_t job)
{
	const char *told = getenv("SLURM_JOB_END_TIME");
	char command[600], answer[40] = "";
	double end = 0;
	if (job == 0 || (told && number_real(told, 0, MOST, &end)))
		return end;
	snprintf(command, sizeof command, "exec " LIBEXECDIR "/muster-requeue --ends --deadline=4 %u 0 2>/dev/null", job);
	FILE *child = popen(command, "re");
	if (!child)
		return 0;
	char *line = fgets(answer, sizeof answer, child);
	if (line)
		answer[strcspn(answer, "\n")] = '\0';
	return pclose(child) == 0 && line && number_real(answer, 0, MOST, &end) ? end : 0;
}
