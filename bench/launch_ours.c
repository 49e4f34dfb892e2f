/* SPDX-License-Identifier: Apache-2.0 */
/* One rank of an idle program that finds its peers as muster-train does, for launch.py.
 *     launch_ours mesh    identity, rendezvous, communicator, and a value from each rank to each
 *                         rank as proof that all connections work
 *     launch_ours meet    identity, rendezvous, and one value from each rank to each rank
 * Prints "rank SIZE NAME=SECONDS…": CLOCK_MONOTONIC at its exec (from launch_start) and after each
 * stage. */
#include "config.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/auto.h"
#include "launch/rdzv.h"
#include "trainer/comm/comm.h"

#define TIMEOUT 240
/* Ranks leave this long after one another: when a PMIx server is too busy to hear a client's
 * farewell for 2 s, the step is killed. */
#define LEAVE_MICROSECONDS 10000

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

struct stages {
	double main, identity, open, usable;
};

static uint64_t bits_of(int rank)
{
	return 0x9e3779b97f4a7c15 * (uint64_t)(rank + 1);
}

/* Sends straight from each rank to each other, so every connection carries data both ways. */
static int use(struct comm *comm, const struct ident *ident, struct err *err)
{
	AUTO_FREE uint64_t *all = calloc((size_t)ident->world_size, sizeof *all);
	uint64_t mine = bits_of(ident->rank);
	if (!all)
		return err_set(err, "out of memory");
	if (comm_wait(comm, comm_allgather(comm, "proof", &mine, all, sizeof mine), err) < 0)
		return -1;
	for (int rank = 0; rank < ident->world_size; rank++)
		if (all[rank] != bits_of(rank))
			return err_set(err, "the bits of rank %d are %#llx", rank,
				(unsigned long long)all[rank]);
	return 0;
}

static int connect_all(const struct ident *ident, struct rdzv *rdzv, struct stages *stages,
	struct err *err)
{
	struct comm *comm = comm_open(ident, rdzv, NULL, TIMEOUT, err);
	int rc = comm ? use(comm, ident, err) : -1;
	stages->usable = now();
	comm_close(comm);
	return rc;
}

static int meet_all(const struct ident *ident, struct rdzv *rdzv, struct stages *stages,
	struct err *err)
{
	char mine[64];
	snprintf(mine, sizeof mine, "rank %d of %d", ident->rank, ident->world_size);
	if (rdzv_put(rdzv, "name", mine, strlen(mine), err) < 0 || rdzv_fence(rdzv, 0, err) < 0)
		return -1;
	for (int rank = 0; rank < ident->world_size; rank++) {
		AUTO_FREE void *value = NULL;
		size_t size;
		if (rdzv_get(rdzv, rank, "name", &value, &size, 0, err) < 0)
			return -1;
		snprintf(mine, sizeof mine, "rank %d of %d", rank, ident->world_size);
		if (strcmp(value, mine) != 0)
			return err_set(err, "rank %d put '%s'", rank, (char *)value);
	}
	stages->usable = now();
	return 0;
}

int main(int argc, char **argv)
{
	struct stages stages = { .main = now() };
	struct ident ident;
	struct err err;
	const char *exec = getenv("BENCH_EXEC");

	if (argc != 2 || !exec || (strcmp(argv[1], "mesh") != 0 && strcmp(argv[1], "meet") != 0)) {
		fprintf(stderr, "usage: launch_start BENCH_EXEC launch_ours mesh|meet\n");
		return EXIT_USAGE;
	}
	if (ident_discover(&ident, &err) < 0)
		return rdzv_leave(NULL, &err);
	stages.identity = now();
	struct rdzv *rdzv = rdzv_open(&ident, NULL, TIMEOUT, &err);
	if (!rdzv)
		return rdzv_leave(NULL, &err);
	stages.open = now();
	int rc = strcmp(argv[1], "mesh") == 0 ? connect_all(&ident, rdzv, &stages, &err)
										  : meet_all(&ident, rdzv, &stages, &err);
	if (rc < 0)
		return rdzv_leave(rdzv, &err);
	printf("rank %d exec=%.6f main=%.6f identity=%.6f open=%.6f usable=%.6f\n", ident.world_size,
		1e-9 * atof(exec), stages.main, stages.identity, stages.open, stages.usable);
	fflush(stdout);
	usleep((useconds_t)ident.rank * LEAVE_MICROSECONDS);
	rdzv_close(rdzv, 1);
	return EXIT_OK;
}
