/* SPDX-License-Identifier: Apache-2.0 */
/* One rank of an idle program that finds its peers as muster-train does, for launch.py.
 *     launch_ours mesh    identity, rendezvous, communicator, and a value from each rank to each
 *                         rank as proof that all connections work
 *     launch_ours meet    identity, rendezvous, and one value from each rank to each rank
 *     launch_ours calls N the same N times, as libmuster's small collectives do
 * Prints "rank SIZE NAME=SECONDS…": CLOCK_MONOTONIC at its exec (from launch_start) and after each
 * stage; with calls, how long one of the first and of the last BLOCK calls took. */
#include "config.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/auto.h"
#include "launch/rank_status.h"
#include "launch/rdzv.h"
#include "trainer/comm/comm.h"

#define TIMEOUT 240
#define BLOCK 100
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

static int exchange(const struct ident *ident, struct rdzv *rdzv, int call, struct err *err)
{
	char key[32];
	int mine = call * ident->world_size + ident->rank;
	const struct rank_status_own own = { .data = &mine, .size = sizeof mine };
	snprintf(key, sizeof key, "call.%d", call);
	struct rank_status *all = rank_status_exchange(rdzv, ident, key, &own, 0, err);
	int rc = all ? 0 : -1;
	for (int rank = 0; rank < ident->world_size && rc == 0; rank++) {
		mine = call * ident->world_size + rank;
		if (all[rank].size != sizeof mine || memcmp(all[rank].data, &mine, sizeof mine) != 0)
			rc = err_set(err, "call %d: rank %d gave another value", call, rank);
	}
	rank_statuses_free(all, ident->world_size);
	return rc;
}

static int call_often(const struct ident *ident, struct rdzv *rdzv, int calls, struct err *err)
{
	double first = 0, began = now();
	for (int call = 0; call < calls; call++) {
		if (call == BLOCK)
			first = (now() - began) / BLOCK;
		if (call == calls - BLOCK)
			began = now();
		if (exchange(ident, rdzv, call, err) < 0)
			return -1;
	}
	printf("rank %d first=%.9f last=%.9f\n", ident->world_size, first, (now() - began) / BLOCK);
	fflush(stdout);
	return 0;
}

int main(int argc, char **argv)
{
	struct stages stages = { .main = now() };
	struct ident ident;
	struct err err;
	const char *exec = getenv("BENCH_EXEC");

	const int calls = argc == 3 && strcmp(argv[1], "calls") == 0 ? atoi(argv[2]) : 0;
	if (!exec
		|| (calls < 2 * BLOCK
			&& (argc != 2 || (strcmp(argv[1], "mesh") != 0 && strcmp(argv[1], "meet") != 0)))) {
		fprintf(stderr, "usage: launch_start BENCH_EXEC launch_ours mesh|meet|calls N\n");
		return EXIT_USAGE;
	}
	if (ident_discover(&ident, &err) < 0)
		return rdzv_leave(NULL, &err);
	stages.identity = now();
	struct rdzv *rdzv = rdzv_open(&ident, NULL, TIMEOUT, &err);
	if (!rdzv)
		return rdzv_leave(NULL, &err);
	stages.open = now();
	int rc = calls                     ? call_often(&ident, rdzv, calls, &err)
		: strcmp(argv[1], "mesh") == 0 ? connect_all(&ident, rdzv, &stages, &err)
									   : meet_all(&ident, rdzv, &stages, &err);
	if (rc < 0)
		return rdzv_leave(rdzv, &err);
	if (!calls)
		printf("rank %d exec=%.6f main=%.6f identity=%.6f open=%.6f usable=%.6f\n",
			ident.world_size, 1e-9 * atof(exec), stages.main, stages.identity, stages.open,
			stages.usable);
	fflush(stdout);
	usleep((useconds_t)ident.rank * LEAVE_MICROSECONDS);
	rdzv_close(rdzv, 1);
	return EXIT_OK;
}
