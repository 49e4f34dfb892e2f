/* SPDX-License-Identifier: Apache-2.0 */
/* Times one copy of a training state for checkpoint.py: three arenas, as the trainer has them, are
 * copied to memory whose pages were touched before.
 *     copy_state BYTES THREADS ROUNDS
 * Prints the median seconds of one thread's memcpy, and those of THREADS threads that share the
 * work. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"

#define ARENAS 3 /* weights and two moments */
#define SLICE ((size_t)16 << 20)
#define ROUNDS_MAX 100

struct arenas {
	size_t bytes; /* of each */
	char *from[ARENAS], *to[ARENAS];
};

static void die(const char *text)
{
	fprintf(stderr, "copy_state: %s\n", text);
	exit(1);
}

static char *touched(size_t bytes, int value)
{
	char *p = aligned_alloc(64, bytes);

	if (!p)
		die("out of memory");
	return memset(p, value, bytes);
}

static double copy_one(const struct arenas *arenas)
{
	double start = clock_now();

	for (int i = 0; i < ARENAS; i++)
		memcpy(arenas->to[i], arenas->from[i], arenas->bytes);
	return clock_now() - start;
}

static double copy_all(const struct arenas *arenas, int threads)
{
	double start = clock_now();

	for (int i = 0; i < ARENAS; i++) {
#pragma omp parallel for num_threads(threads) schedule(dynamic)
		for (size_t at = 0; at < arenas->bytes; at += SLICE)
			memcpy(arenas->to[i] + at, arenas->from[i] + at,
				arenas->bytes - at < SLICE ? arenas->bytes - at : SLICE);
	}
	return clock_now() - start;
}

static int compare(const void *a, const void *b)
{
	return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

int main(int argc, char **argv)
{
	struct arenas arenas;
	double one[ROUNDS_MAX], all[ROUNDS_MAX];
	int threads, rounds;

	if (argc != 4)
		die("usage: copy_state BYTES THREADS ROUNDS");
	arenas.bytes = (strtoull(argv[1], NULL, 10) / ARENAS + 63) / 64 * 64;
	threads = atoi(argv[2]);
	rounds = atoi(argv[3]);
	if (threads < 1 || rounds < 1 || rounds > ROUNDS_MAX)
		die("usage: copy_state BYTES THREADS ROUNDS");
	for (int i = 0; i < ARENAS; i++) {
		arenas.from[i] = touched(arenas.bytes, i + 1);
		arenas.to[i] = touched(arenas.bytes, 0);
	}
	for (int i = 0; i < rounds; i++) {
		one[i] = copy_one(&arenas);
		all[i] = copy_all(&arenas, threads);
	}
	qsort(one, (size_t)rounds, sizeof(*one), compare);
	qsort(all, (size_t)rounds, sizeof(*all), compare);
	printf("%.6f %.6f\n", one[rounds / 2], all[rounds / 2]);
	for (int i = 0; i < ARENAS; i++) {
		free(arenas.from[i]);
		free(arenas.to[i]);
	}
	return 0;
}
