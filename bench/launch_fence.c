/* SPDX-License-Identifier: Apache-2.0 */
/* The least that a program must do to learn something from all its peers by PMIx, as a lower bound
 * for launch.py: init, put, commit, a fence that collects, and a get from each peer. Prints "rank
 * SIZE NAME=SECONDS…" as launch_ours does; with an argument N that many times, as launch_ours calls
 * N. */
#include <pmix.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LEAVE_MICROSECONDS 10000 /* as in launch_ours.c */
#define BLOCK 100

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void check(pmix_status_t status, const char *what)
{
	if (status == PMIX_SUCCESS)
		return;
	fprintf(stderr, "launch_fence: couldn't %s: %s\n", what, PMIx_Error_string(status));
	exit(1);
}

static unsigned world_size(const pmix_proc_t *self)
{
	pmix_proc_t job;
	pmix_value_t *value;
	PMIX_LOAD_PROCID(&job, self->nspace, PMIX_RANK_WILDCARD);
	check(PMIx_Get(&job, PMIX_JOB_SIZE, NULL, 0, &value), "learn the number of ranks");
	unsigned size = value->data.uint32;
	PMIX_VALUE_RELEASE(value);
	return size;
}

static void publish(const pmix_proc_t *self, const char *key)
{
	char text[64];
	pmix_value_t value;
	snprintf(text, sizeof text, "rank %u", self->rank);
	PMIX_VALUE_CONSTRUCT(&value);
	value.type = PMIX_STRING;
	value.data.string = text;
	check(PMIx_Put(PMIX_GLOBAL, key, &value), "put");
	check(PMIx_Commit(), "commit");
}

static void fence(void)
{
	pmix_info_t info;
	bool collect = true;
	PMIX_INFO_LOAD(&info, PMIX_COLLECT_DATA, &collect, PMIX_BOOL);
	check(PMIx_Fence(NULL, 0, &info, 1), "fence");
}

static void read_all(const pmix_proc_t *self, unsigned size, const char *key)
{
	for (unsigned rank = 0; rank < size; rank++) {
		char want[64];
		pmix_proc_t peer;
		pmix_value_t *value;
		PMIX_LOAD_PROCID(&peer, self->nspace, rank);
		check(PMIx_Get(&peer, key, NULL, 0, &value), "get");
		snprintf(want, sizeof want, "rank %u", rank);
		check(value->type == PMIX_STRING && strcmp(value->data.string, want) == 0 ? PMIX_SUCCESS
																				  : PMIX_ERROR,
			"read a value");
		PMIX_VALUE_RELEASE(value);
	}
}

static void meet(const pmix_proc_t *self, unsigned size, const char *key)
{
	publish(self, key);
	fence();
	read_all(self, size, key);
}

static void call_often(const pmix_proc_t *self, unsigned size, int calls)
{
	double first = 0, began = now();
	for (int call = 0; call < calls; call++) {
		char key[32];
		if (call == BLOCK)
			first = (now() - began) / BLOCK;
		if (call == calls - BLOCK)
			began = now();
		snprintf(key, sizeof key, "call.%d", call);
		meet(self, size, key);
	}
	printf("rank %u first=%.9f last=%.9f\n", size, first, (now() - began) / BLOCK);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	double start = now();
	pmix_proc_t self;
	const char *exec = getenv("BENCH_EXEC");
	const int calls = argc == 2 ? atoi(argv[1]) : 0;

	if (!exec || argc > 2 || (argc == 2 && calls < 2 * BLOCK)) {
		fprintf(stderr, "usage: launch_start BENCH_EXEC launch_fence [CALLS]\n");
		return 2;
	}
	check(PMIx_Init(&self, NULL, 0), "init");
	double open = now();
	unsigned size = world_size(&self);
	meet(&self, size, "name");
	double usable = now();
	if (!calls)
		printf("rank %u exec=%.6f main=%.6f open=%.6f usable=%.6f\n", size, 1e-9 * atof(exec),
			start, open, usable);
	fflush(stdout);
	if (calls)
		call_often(&self, size, calls);
	usleep(self.rank * LEAVE_MICROSECONDS);
	check(PMIx_Finalize(NULL, 0), "finalize");
	return 0;
}
