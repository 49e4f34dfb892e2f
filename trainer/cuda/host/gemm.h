/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products by cuBLASLt, each by the one algorithm that was chosen for it.
 *
 * cuBLASLt's matrices stand column by column, ours row by row, and the one is the other's
 * transpose: D = X · W of ours is Dᵀ = Wᵀ · Xᵀ of theirs. So their A is our W, their B our X, their
 * rows are our columns, and a bias of one number a row of theirs is one of ours a column. */
#ifndef MUSTER_CUDA_GEMM_H
#define MUSTER_CUDA_GEMM_H

#include "common/err.h"
#include "trainer/cuda/host/cublas.h"
#include "trainer/cuda/host/gemm_plans.h"

struct gemm_engine;

/* Device memory of one product; all aligned to 256 bytes but the bias. */
struct gemm_operands {
	void *d;
	const void *x, *w;
	const void *bias; /* with a bias */
	void *kept;       /* [rows, columns]: what bias-gelu keeps and gelu-grad reads */
	float *sums;      /* [columns]: what bias-grad writes */
};

/* `lib` and `workspace` (GEMM_PLANS_WORKSPACE bytes of device memory, for one stream) are borrowed.
 * NULL on error. */
struct gemm_engine *gemm_engine_create(const struct cublas *lib, enum gemm_mode mode,
	const char *card, void *workspace, struct err *err);
/* NULL is allowed. */
void gemm_engine_destroy(struct gemm_engine *engine);

/* Chooses by the library's heuristics, unless it was chosen before. An epilogue that the library
 * has none for becomes a choice of `none`, and bias-grad always does: who wants the library's has
 * to time it (tune.h). A product that it can't make at all is an error. */
int gemm_choose(struct gemm_engine *engine, const struct gemm *gemm, struct err *err);
/* Takes over choices: those of an earlier attempt, or rank 0's. Refuses, and then keeps none, if
 * they do not fit or the library does not take one of them. */
int gemm_adopt(struct gemm_engine *engine, const struct gemm_plans *plans, struct err *err);
const struct gemm_plans *gemm_choices(const struct gemm_engine *engine);

/* A product with the algorithms that may be used for it, at most `most`, as the library orders
 * them: there may be none. NULL on error. Of the engine nothing is changed. */
struct gemm_trial *gemm_trial_create(struct gemm_engine *engine, const struct gemm *gemm, int most,
	struct err *err);
int gemm_trial_count(const struct gemm_trial *trial);
/* As gemm_launch, by one of them. */
int gemm_trial_run(struct gemm_trial *trial, int algorithm, const struct gemm_operands *operands,
	void *stream, struct err *err);
/* Makes one of them, or none (-1), the choice of the engine, which had none. */
int gemm_trial_keep(struct gemm_trial *trial, int algorithm, struct err *err);
/* NULL is allowed. */
void gemm_trial_destroy(struct gemm_trial *trial);

/* Whether gemm_launch can make it, epilogue included; chooses where that was not done. */
bool gemm_is_there(struct gemm_engine *engine, const struct gemm *gemm, struct err *err);
/* Queues it on the stream (cudaStream_t). */
int gemm_launch(struct gemm_engine *engine, const struct gemm *gemm,
	const struct gemm_operands *operands, void *stream, struct err *err);

#endif
