/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses a rank's number of threads from its CPU mask and Slurm's variable. */
#include "config.h"

#include "trainer/run/threads.h"

#include <sched.h>
#include <stdlib.h>
#include <unistd.h>
#ifdef _OPENMP
#include <omp.h>
#endif

int threads_default(const struct ident *ident)
{
	const char *word = getenv("SLURM_CPUS_PER_TASK");
	int asked = word ? atoi(word) : 0;
	long online = sysconf(_SC_NPROCESSORS_ONLN);
	cpu_set_t set;
	int usable = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : (int)online;
	if (usable >= online)
		usable = (int)online / (ident->local_world_size > 0 ? ident->local_world_size : 1);
	/* Ignores Slurm's number if Slurm believes in more CPUs than the machine has. */
	if (asked > 0 && asked <= online)
		return asked;
	return usable > 0 ? usable : 1;
}

void threads_set(int count)
{
#ifdef _OPENMP
	omp_set_dynamic(0);
	omp_set_num_threads(count);
#else
	(void)count;
#endif
}
