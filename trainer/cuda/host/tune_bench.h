/* SPDX-License-Identifier: Apache-2.0 */
/* One product on the bench: its operands, all ways to make it, what they give and how long they
 * take. */
#ifndef MUSTER_CUDA_TUNE_BENCH_H
#define MUSTER_CUDA_TUNE_BENCH_H

#include "trainer/cuda/host/gemm.h"

#define TUNE_MARGIN 0.01 /* of the first's time */
#define TUNE_WAYS 33     /* algorithms of the library, and ours */
#define TUNE_COMPOSED \
	-1 /* the plain product with a kernel of ours behind it, in the place of an algorithm's number \
		*/

/* Where the operands of a product lie, from the begin of a set on; those behind `out` are written
 * by some way. */
struct tune_layout {
	size_t x, w, out, d, vector, kept; /* the latter three from `out` on */
	size_t out_bytes, bytes;
};

struct tune {
	struct gemm_engine *engine;
	void *stream;        /* cudaStream_t */
	float *scratch;      /* of the backward passes of these products */
	size_t cache;        /* bytes of the device's last cache */
	double seconds;      /* that it may take; what isn't timed then stays without a choice */
	double (*now)(void); /* seconds of a clock */
};

struct tune_bench {
	const struct tune *tune;
	struct gemm gemm;
	struct gemm_trial *trial;
	int ways[TUNE_WAYS], count; /* the number of an algorithm or TUNE_COMPOSED; the first is what is
								   chosen without tuning */
	struct tune_layout layout;
	char *memory; /* `sets` of operands, two more sets of what is written, numbers, distances */
	size_t sets, next;         /* which set is used next */
	double medians[TUNE_WAYS]; /* milliseconds of a way */
};

/* 0, or 1 where there is no memory for it, or -1. tune_bench_clear in any case. */
int tune_bench_prepare(struct tune_bench *bench, const struct tune *tune, const struct gemm *gemm,
	struct err *err);
void tune_bench_clear(struct tune_bench *bench);

/* Leaves out what can't be run or is wrong; returns how many, or -1. */
int tune_bench_check(struct tune_bench *bench, struct err *err);
/* Times all ways until `deadline` of the clock at best; 0, 1 where that is too short, or -1. */
int tune_bench_time(struct tune_bench *bench, double deadline, struct err *err);

#endif
