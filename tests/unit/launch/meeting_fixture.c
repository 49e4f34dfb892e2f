/* SPDX-License-Identifier: Apache-2.0 */
/* Results come back through shared memory. */
#include "config.h"
#include "tests/unit/launch/meeting_fixture.h"

#include <dirent.h>
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
#include "tests/unit/files.h"
#include "tests/unit/hang.h"

/* By the names in the run's folder: launch/rdzv_file.c has their meaning. */
struct meeting_count meeting_count(int rank)
{
	struct meeting_count count = { 0 };
	char path[300], end[16];
	snprintf(path, sizeof path, "%s/muster-%s-0.0", getenv("MUSTER_RDZV_DIR"),
		getenv("MUSTER_RDZV_ID"));
	snprintf(end, sizeof end, ".%d", rank);
	DIR *dir = opendir(path);
	if (!dir)
		return (struct meeting_count) { -1, -1 };
	for (struct dirent *entry; (entry = readdir(dir));) {
		const char *dot = strrchr(entry->d_name, '.');
		if (!dot || strcmp(dot, end) != 0)
			continue;
		count.puts += strncmp(entry->d_name, "put.", 4) == 0;
		count.fences += strncmp(entry->d_name, "fence.", 6) == 0;
	}
	closedir(dir);
	return count;
}

static void be_rank(int rank, int size, meeting_body *body, struct meeting_rank *mine)
{
	struct ident ident = { .rank = rank,
		.world_size = size,
		.local_world_size = 1,
		.node_rank = rank,
		.node_count = size,
		.source = "torchrun" };
	snprintf(ident.node, sizeof ident.node, "n%d", rank);
	alarm(2 * HANG_SECONDS);
	struct rdzv *rdzv = rdzv_open(&ident, "file", HANG_SECONDS, &mine->err);
	if (!rdzv)
		return;
	double began = clock_now();
	mine->rc = body(rdzv, &ident, mine, &mine->err);
	mine->seconds = clock_now() - began;
	rdzv_close(rdzv, 1);
}

void meeting_run(int size, meeting_body *body, struct meeting_rank *ranks)
{
	char folder[FILES_PATH_SIZE];
	pid_t pids[MEETING_MAX];
	assert_in_range(size, 1, MEETING_MAX);
	assert_int_equal(files_make_folder(folder), 0);
	setenv("MUSTER_RDZV_DIR", folder, 1);
	setenv("MUSTER_RDZV_ID", "meeting", 1);
	struct meeting_rank *shared = mmap(NULL, sizeof *shared * (size_t)size, PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(shared != MAP_FAILED);
	fflush(NULL);
	for (int rank = 0; rank < size; rank++) {
		shared[rank].rc = 1;
		if ((pids[rank] = fork()) == 0) {
			be_rank(rank, size, body, &shared[rank]);
			_exit(0);
		}
		assert_true(pids[rank] > 0);
	}
	for (int rank = 0; rank < size; rank++) {
		int status;
		assert_int_equal(waitpid(pids[rank], &status, 0), pids[rank]);
		shared[rank].signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
	}
	memcpy(ranks, shared, sizeof *shared * (size_t)size);
	munmap(shared, sizeof *shared * (size_t)size);
	assert_int_equal(files_remove_folder(folder), 0);
}
