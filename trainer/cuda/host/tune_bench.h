/* SPDX-License-Identifier: Apache-2.0 */
/* A bench for one product: its operands, all ways to compute it, their results and times. */
#ifndef MUSTER_CUDA_TUNE_BENCH_H
#define MUSTER_CUDA_TUNE_BENCH_H

#include "trainer/cuda/host/gemm.h"

#define TUNE_MARGIN 0.01 /* of the first way's time */
#define TUNE_WAYS 33     /* the library's algorithms, and ours */
#define TUNE_COMPOSED \
	-1 /* in place of an algorithm's number: the plain product and a kernel of ours */

/* Offsets of a product's operands in a set. Some way writes those from `out` on. */
struct tune_layout {
	size_t x, w, out, d, vector, kept; /* the last three: from `out` on */
	size_t out_bytes, bytes;
};

struct tune {
	struct gemm_engine *engine;
	void *stream;        /* cudaStream_t */
	float *scratch;      /* for the backward passes of these products */
	size_t cache;        /* bytes of the device's last-level cache */
	double seconds;      /* time limit; products that are not timed by then get no choice */
	double (*now)(void); /* seconds of a clock */
};

struct tune_bench {
	const struct tune *tune;
	struct gemm gemm;
	struct gemm_trial *trial;
	int ways[TUNE_WAYS], count; /* algorithms or TUNE_COMPOSED; first: untuned choice */
	struct tune_layout layout;
	char *memory;      /* `sets` of operands, two more sets of results, numbers, distances */
	size_t sets, next; /* next: the set used next */
	double medians[TUNE_WAYS]; /* milliseconds of each way */
};

/* 0, 1 when there is not enough memory, or -1. Call tune_bench_clear in any case. */
int tune_bench_prepare(struct tune_bench *bench, const struct tune *tune, const struct gemm *gemm,
	struct err *err);
void tune_bench_clear(struct tune_bench *bench);

/* Removes ways that can't run or give wrong results; returns their number, or -1. */
int tune_bench_check(struct tune_bench *bench, struct err *err);
/* Times all ways, until `deadline` of the clock at most. Returns 0, 1 if the time is too short, or
 * -1. */
int tune_bench_time(struct tune_bench *bench, double deadline, struct err *err);

#endif
