/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/clock.h"
#include "tests/unit/hang.h"
#include "tests/unit/lib/ranks_fixture.h"

struct ranks_outcome *ranks_outcomes;

static void be_rank(int rank, ranks_body *body, bool ended)
{
	struct muster *muster;
	struct ranks_outcome *mine = &ranks_outcomes[rank];
	char number[20];
	snprintf(number, sizeof number, "%d", rank);
	setenv("RANK", number, 1);
	alarm(2 * HANG_SECONDS);
	mine->status = muster_open(&muster, HANG_SECONDS);
	double begun = clock_now();
	bool opened = mine->status == MUSTER_OK;
	if (opened)
		mine->status = body(muster, rank);
	mine->seconds = clock_now() - begun;
	snprintf(mine->text, sizeof mine->text, "%s", muster_error());
	if (!opened || !ended)
		muster_close(muster, mine->status != MUSTER_LOST);
	_exit(0);
}

void ranks_run(ranks_body *body, bool ended)
{
	static int runs;
	char id[20];
	pid_t pids[RANKS];
	snprintf(id, sizeof id, "run-%d", runs++);
	setenv("MUSTER_RDZV_ID", id, 1);
	fflush(NULL);
	for (int rank = 0; rank < RANKS; rank++) {
		ranks_outcomes[rank] = (struct ranks_outcome) { .status = -1 };
		if ((pids[rank] = fork()) == 0)
			be_rank(rank, body, ended);
	}
	for (int rank = 0; rank < RANKS; rank++)
		assert_int_equal(waitpid(pids[rank], NULL, 0), pids[rank]);
}

void ranks_assert(int status, const char *words, int but)
{
	int first = but == 0;
	for (int rank = 0; rank < RANKS; rank++) {
		const struct ranks_outcome *outcome = &ranks_outcomes[rank];
		if (rank == but)
			continue;
		if (outcome->status != status || !strstr(outcome->text, words))
			fail_msg("rank %d: status %d: %s", rank, outcome->status, outcome->text);
		assert_string_equal(outcome->text, ranks_outcomes[first].text);
	}
}

void ranks_assert_each(int status, const char *words, int but)
{
	for (int rank = 0; rank < RANKS; rank++) {
		const struct ranks_outcome *outcome = &ranks_outcomes[rank];
		if (rank != but && (outcome->status != status || !strstr(outcome->text, words)))
			fail_msg("rank %d: status %d, not %d: %s", rank, outcome->status, status,
				outcome->text);
	}
}

int ranks_setup(const char *folder)
{
	static const char *const foreign[] = { "PMIX_RANK", "PMIX_NAMESPACE", "SLURM_JOB_ID",
		"SLURM_STEP_ID", "SLURM_PROCID", "MUSTER_RDZV", "MUSTER_CKPTD", "MUSTER_ATTEMPT" };
	char service[4096], size[12];
	for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++)
		unsetenv(foreign[i]);
	snprintf(size, sizeof size, "%d", RANKS);
	ranks_outcomes = mmap(NULL, RANKS * sizeof *ranks_outcomes, PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	/* Tests run in the build folder. */
	if (ranks_outcomes == MAP_FAILED || !realpath("muster-ckptd", service))
		return -1;
	return setenv("WORLD_SIZE", size, 1) || setenv("MUSTER_CKPTD_PROGRAM", service, 1)
			|| setenv("MUSTER_RDZV_DIR", folder, 1)
		? -1
		: 0;
}
