/* SPDX-License-Identifier: Apache-2.0 */
/* How fast this machine's memory is read, for generate.py.
 *     read_rate MEGABYTES SECONDS
 * All of OpenMP's threads read a block of that size, each a run of its own, over and over. Prints
 * the bytes a second of the fastest pass. */
#include "config.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/number.h"

typedef uint64_t wide __attribute__((vector_size(64)));

/* The sum keeps the reads from being left out. */
static uint64_t read_all(const wide *block, size_t count)
{
	uint64_t sum = 0;
#pragma omp parallel reduction(+ : sum)
	{
		wide mine[4] = { 0 };
#pragma omp for schedule(static)
		for (size_t i = 0; i < count / 4; i++)
			for (size_t k = 0; k < 4; k++)
				mine[k] ^= block[4 * i + k];
		for (size_t k = 0; k < 4; k++)
			for (size_t lane = 0; lane < 8; lane++)
				sum += mine[k][lane];
	}
	return sum;
}

int main(int argc, char **argv)
{
	int64_t megabytes;
	double seconds, best = 0;
	uint64_t sum = 0;
	if (argc != 3 || !number_whole(argv[1], 1, 1 << 20, &megabytes)
		|| !number_real(argv[2], 0, 1e6, &seconds)) {
		fprintf(stderr, "usage: read_rate MEGABYTES SECONDS\n");
		return 2;
	}
	const size_t bytes = (size_t)megabytes << 20;
	wide *block = aligned_alloc(sizeof *block, bytes);
	if (!block) {
		fprintf(stderr, "read_rate: no memory for %lld MB\n", (long long)megabytes);
		return 1;
	}
#pragma omp parallel for schedule(static)
	for (size_t i = 0; i < bytes / sizeof *block; i++)
		memset(&block[i], (int)i, sizeof *block);
	for (const double end = clock_now() + seconds; clock_now() < end;) {
		const double began = clock_now();
		sum += read_all(block, bytes / sizeof *block);
		const double rate = (double)bytes / (clock_now() - began);
		best = rate > best ? rate : best;
	}
	printf("%.0f %llu\n", best, (unsigned long long)sum % 2);
	free(block);
	return 0;
}
