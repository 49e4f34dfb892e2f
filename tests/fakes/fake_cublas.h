/* SPDX-License-Identifier: Apache-2.0 */
/* cuBLASLt on the host, as far as products call it and as NVIDIA's documentation describes it:
 * matrices stand column by column, D = op(A)·op(B) + beta·C, one number of the bias a row of D. It
 * knows nothing of ours, so what comes out right was called right. */
#ifndef MUSTER_TESTS_FAKE_CUBLAS_H
#define MUSTER_TESTS_FAKE_CUBLAS_H

#include <stdbool.h>

#include "trainer/cuda/host/cublas.h"

/* What it is to do, and what it has seen. Zeroed: all is well. */
struct fake_cublas {
	size_t version;        /* 0: 130001 */
	unsigned no_epilogues; /* cublasLtEpilogue_t of which it has no algorithm, joined by | of 1 <<
							  their place in epilogues[] */
	int bad_candidates;    /* the first this many have a bad reduction scheme or workspace */
	bool refuses;          /* cublasLtMatmulAlgoCheck refuses */
	int objects;           /* handles, descriptors, layouts and preferences that are alive */
	int heuristics, plans; /* calls */
	unsigned fails, wrong, wanders; /* candidates, 1 << number: can't be run, give other numbers,
									   give others each time */
	double (*duration)(int epilogue, int candidate, int gemm); /* milliseconds of a product, */
	double *clock;                                             /* which go on here */
};

enum {
	FAKE_DEFAULT,
	FAKE_BIAS,
	FAKE_GELU_AUX_BIAS,
	FAKE_RELU_BIAS,
	FAKE_DGELU,
	FAKE_BGRADA,
	FAKE_EPILOGUES
};

extern struct fake_cublas fake_cublas;
extern const struct cublas fake_cublas_library;

#endif
