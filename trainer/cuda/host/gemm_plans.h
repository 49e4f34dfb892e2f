/* SPDX-License-Identifier: Apache-2.0 */
/* The matrix products of a training on the GPU and the algorithm that was chosen for each: the
 * library has many for every shape, and each adds in an order of its own. So they are chosen once,
 * by rank 0 before the first step, and stay those of the run. The text form travels to the other
 * ranks and stands in every checkpoint (doc/gemm-plans-format.md). */
#ifndef MUSTER_GEMM_PLANS_H
#define MUSTER_GEMM_PLANS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "trainer/ops/ops.h"

enum gemm_type { GEMM_FP32, GEMM_BF16 };
enum gemm_mode { GEMM_MODE_FP32, GEMM_MODE_TF32, GEMM_MODE_BF16 }; /* --precision */

/* What is made of the sums before they are written. */
enum gemm_epilogue {
	GEMM_PLAIN,
	GEMM_BIAS,      /* + bias[N] */
	GEMM_BIAS_GELU, /* keeps the sums with the bias, then GELU in its tanh form */
	GEMM_BIAS_RELU,
	GEMM_GELU_GRAD, /* times GELU'(what was kept) */
	GEMM_BIAS_GRAD, /* writes the sums of W over `depth`, too */
};

/* D[rows, columns] = or += X · W over `depth`, all row-major. X is [rows, depth], or [depth, rows]
 * with x_transposed; W is [depth, columns], or [columns, depth] with w_transposed. X and W have the
 * type `in`, D, bias and what is kept `out`. */
struct gemm {
	int rows, columns, depth;
	bool x_transposed, w_transposed;
	enum gemm_type in, out;
	enum gemm_epilogue epilogue;
	bool adds;
};

#define GEMM_WORDS 8 /* of what the library calls an algorithm */
#define GEMM_PLANS_MAX 1024
#define GEMM_PLANS_WORKSPACE ((size_t)32 << 20)

struct gemm_choice {
	struct gemm gemm;
	bool none;                      /* no algorithm of the library: ours does the epilogue */
	uint64_t algorithm[GEMM_WORDS]; /* as the library gave it; zeros for none */
	uint64_t workspace;             /* bytes that it uses, at most GEMM_PLANS_WORKSPACE */
};

/* The choices of a run. */
struct gemm_plans {
	uint64_t library; /* version of cuBLASLt: 130001 */
	enum gemm_mode mode;
	char card[128];           /* for which they were made, such as "NVIDIA H200" */
	struct gemm_choice *rows; /* each product once */
	size_t count;
};

/* The products that a model of these shapes has: gpt2 where there are heads, else mlp. Returns how
 * many, at most `most`. */
size_t gemm_plans_of(const struct ops_shapes *shapes, enum gemm_mode mode, struct gemm *out,
	size_t most);

bool gemm_equal(const struct gemm *a, const struct gemm *b);
/* NULL: not chosen. Valid until the next gemm_plans_add. */
const struct gemm_choice *gemm_plans_find(const struct gemm_plans *plans, const struct gemm *gemm);
/* -1 when out of memory, or when there are GEMM_PLANS_MAX. */
int gemm_plans_add(struct gemm_plans *plans, const struct gemm_choice *choice, struct err *err);
void gemm_plans_clear(struct gemm_plans *plans);

/* "8192 x 2304 over 768, nn, bf16 to bf16, bias", for messages; returns `out`. */
char *gemm_text(const struct gemm *gemm, char *out, size_t size);

/* One line, malloc'ed; NULL when out of memory. */
char *gemm_plans_encode(const struct gemm_plans *plans);
/* *plans is zeroed or what is read, for gemm_plans_clear. EXIT_DATA with the place where the text
 * is malformed. */
int gemm_plans_decode(const char *text, struct gemm_plans *plans, struct err *err);
/* Whether what was chosen at an earlier attempt can be used again: 0, or -1 with the line that says
 * what is different. */
int gemm_plans_fit(const struct gemm_plans *plans, uint64_t library, enum gemm_mode mode,
	const char *card, struct err *err);

#endif
