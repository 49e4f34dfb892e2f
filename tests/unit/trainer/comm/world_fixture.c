/* SPDX-License-Identifier: Apache-2.0 */
/* Forks a world over the file rendezvous; results come back through shared memory. */
#include "config.h"

#include "tests/unit/trainer/comm/world_fixture.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/clock.h"
#include "common/log.h"
#include "launch/rdzv.h"
#include "tests/unit/files.h"
#include "tests/unit/hang.h"

const struct comm_provider *world_provider;

#define HANG_LIMIT (300 * SLOWER)

static int be_rank(int rank, int size, double deadline, world_body *body, void *arg,
	struct world_rank *result)
{
	struct ident ident = { .rank = rank,
		.world_size = size,
		.local_rank = rank,
		.local_world_size = size,
		.node_count = 1,
		.node = "here",
		.source = "torchrun" };
	struct rdzv *rdzv = rdzv_open(&ident, size > 1 ? "file" : "single", 30 * SLOWER, &result->err);
	if (!rdzv)
		return -1;
	struct comm *comm = world_provider && size > 1
		? comm_open_over(world_provider, &ident, rdzv, deadline, &result->err)
		: comm_open(&ident, rdzv, NULL, deadline, &result->err);
	double begun = clock_now();
	int rc = comm ? body(comm, arg, &result->err) : -1;

	result->seconds = clock_now() - begun;
	comm_close(comm);
	rdzv_close(rdzv, rc == 0);
	return rc;
}

/* Waits for all; kills what is left when it hangs, or when only stopped processes are. */
static void reap(int size, const pid_t *pids, struct world_rank *ranks)
{
	struct deadline end = deadline_in(HANG_LIMIT);
	bool reaped[WORLD_MAX] = { false };
	int left = size, stopped = 0;

	while (left > 0) {
		for (int i = 0; i < size; i++) {
			int status;
			if (reaped[i] || waitpid(pids[i], &status, WNOHANG | WUNTRACED) != pids[i])
				continue;
			if (WIFSTOPPED(status)) {
				stopped++;
				continue;
			}
			reaped[i] = true;
			left--;
			ranks[i].signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
		}
		if (left > stopped && deadline_sleep(end, 0.005))
			continue;
		for (int i = 0; i < size; i++)
			if (!reaped[i])
				kill(pids[i], SIGKILL);
		stopped = 0;
	}
}

void world_run(int size, double deadline, world_body *body, void *arg, struct world_rank *ranks)
{
	static int worlds;
	char folder[FILES_PATH_SIZE], id[64];
	pid_t pids[WORLD_MAX];

	assert_in_range(size, 1, WORLD_MAX);
	assert_int_equal(files_make_folder(folder), 0);
	snprintf(id, sizeof id, "%d-%d", (int)getpid(), worlds++);
	setenv("MUSTER_RDZV_DIR", folder, 1);
	setenv("MUSTER_RDZV_ID", id, 1);
	struct world_rank *shared = mmap(NULL, sizeof *shared * (size_t)size, PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(shared != MAP_FAILED);
	fflush(NULL);
	for (int rank = 0; rank < size; rank++) {
		pids[rank] = fork();
		if (pids[rank] == 0) {
			log_set_tag("rank %d", rank);
			log_set_level(LOG_LEVEL_WARN);
			shared[rank].rc = be_rank(rank, size, deadline * SLOWER, body, arg, &shared[rank]);
			shared[rank].finished = 1;
			_exit(0);
		}
		assert_true(pids[rank] > 0);
	}
	reap(size, pids, shared);
	memcpy(ranks, shared, sizeof *shared * (size_t)size);
	munmap(shared, sizeof *shared * (size_t)size);
	assert_int_equal(files_remove_folder(folder), 0);
}

void world_assert_ok(int size, const struct world_rank *ranks)
{
	for (int rank = 0; rank < size; rank++)
		if (ranks[rank].signal)
			fail_msg("rank %d of %d died of signal %d", rank, size, ranks[rank].signal);
	for (int rank = 0; rank < size; rank++) {
		if (!ranks[rank].finished || ranks[rank].rc != 0)
			fail_msg("rank %d of %d: %s", rank, size,
				ranks[rank].finished ? ranks[rank].err.text : "did not finish");
	}
}

void world_run_ok(int size, world_body *body, void *arg)
{
	struct world_rank ranks[WORLD_MAX];

	world_run(size, 20, body, arg, ranks);
	world_assert_ok(size, ranks);
}

void world_assert_names(const struct world_rank *rank, const char *word)
{
	if (!strstr(rank->err.text, word))
		fail_msg("\"%s\" is not in: %s", word, rank->err.text);
}
