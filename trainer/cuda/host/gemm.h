/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products by cuBLASLt, each with the one algorithm that was chosen for it.
 *
 * cuBLASLt's matrices are column-major and ours are row-major, and one is the other's transpose:
 * our D = X · W is their Dᵀ = Wᵀ · Xᵀ. So their A is our W, their B our X, their rows are our
 * columns, and their bias of one number a row is ours of one number a column. */
#ifndef MUSTER_CUDA_GEMM_H
#define MUSTER_CUDA_GEMM_H

#include "common/err.h"
#include "trainer/cuda/host/cublas.h"
#include "trainer/cuda/host/gemm_plans.h"

struct gemm_engine;

/* Device memory of one product; all aligned to 256 bytes except the bias. */
struct gemm_operands {
	void *d;
	const void *x, *w;
	const void *bias; /* for epilogues with a bias */
	void *kept;       /* [rows, columns]: bias-gelu writes it, gelu-grad reads it */
	float *sums;      /* [columns]: written by bias-grad */
};

/* Borrows `lib` and `workspace` (GEMM_PLANS_WORKSPACE bytes of device memory, used by one stream).
 * NULL on error. */
struct gemm_engine *gemm_engine_create(const struct cublas *lib, enum gemm_mode mode,
	const char *card, void *workspace, struct err *err);
/* `engine` may be NULL. */
void gemm_engine_destroy(struct gemm_engine *engine);

/* Chooses an algorithm by the library's heuristics, unless one is chosen already. An epilogue that
 * the library lacks becomes a choice of `none`, and so does bias-grad always: to use the library's,
 * time it (tune.h). A product that the library can't compute at all is an error. */
int gemm_choose(struct gemm_engine *engine, const struct gemm *gemm, struct err *err);
/* Adopts the choices of an earlier attempt or of rank 0. Keeps none of them and returns -1 if they
 * do not fit, or if the library refuses one. */
int gemm_adopt(struct gemm_engine *engine, const struct gemm_plans *plans, struct err *err);
const struct gemm_plans *gemm_choices(const struct gemm_engine *engine);

/* A product with the algorithms that are usable for it, in the library's order, at most `most`;
 * there may be none. NULL on error. Does not change the engine. */
struct gemm_trial *gemm_trial_create(struct gemm_engine *engine, const struct gemm *gemm, int most,
	struct err *err);
int gemm_trial_count(const struct gemm_trial *trial);
/* As gemm_launch, with one of these algorithms. */
int gemm_trial_run(struct gemm_trial *trial, int algorithm, const struct gemm_operands *operands,
	void *stream, struct err *err);
/* Makes one of them, or none (-1), the engine's choice; the engine must not have one yet. */
int gemm_trial_keep(struct gemm_trial *trial, int algorithm, struct err *err);
/* `trial` may be NULL. */
void gemm_trial_destroy(struct gemm_trial *trial);

/* Whether gemm_launch can compute it, epilogue included; chooses an algorithm if none is chosen
 * yet. */
bool gemm_is_there(struct gemm_engine *engine, const struct gemm *gemm, struct err *err);
/* Queues the product on the stream (cudaStream_t). */
int gemm_launch(struct gemm_engine *engine, const struct gemm *gemm,
	const struct gemm_operands *operands, void *stream, struct err *err);

#endif
