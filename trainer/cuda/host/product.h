/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products by cuBLASLt, each by the one algorithm that was chosen for it.
 *
 * cuBLASLt's matrices stand column by column, ours row by row, and the one is the other's transpose: D = X · W of ours is
 * Dᵀ = Wᵀ · Xᵀ of theirs. So their A is our W, their B our X, their rows are our columns, and a bias of one number a row of theirs is one
 * of ours a column. */
#ifndef MUSTER_CUDA_PRODUCT_H
#define MUSTER_CUDA_PRODUCT_H

#include "common/err.h"
#include "trainer/cuda/host/cublas.h"
#include "trainer/cuda/host/products.h"

struct product_engine;

/* Device memory of one product; all aligned to 256 bytes but the bias. */
struct product_operands {
	void *d;
	const void *x, *w;
	const void *bias; /* with a bias */
	void *kept;       /* [rows, columns]: what bias-gelu keeps and gelu-grad reads */
	float *sums;      /* [columns]: what bias-grad writes */
};

/* `lib` and `workspace` (PRODUCTS_WORKSPACE bytes of device memory, for one stream) are borrowed. NULL on error. */
struct product_engine *product_engine_create(const struct cublas *lib, enum product_mode mode, const char *card, void *workspace,
	struct err *err);
/* NULL is allowed. */
void product_engine_destroy(struct product_engine *engine);

/* Chooses by the library's heuristics, unless it was chosen before. An epilogue that the library has none for becomes a choice of
 * `none`, and bias-grad always does: who wants the library's has to time it (tune.h). A product that it can't make at all is an
 * error. */
int product_choose(struct product_engine *engine, const struct product *product, struct err *err);
/* Takes over choices: those of an earlier attempt, or rank 0's. Refuses, and then keeps none, if they do not fit or the library does
 * not take one of them. */
int product_adopt(struct product_engine *engine, const struct products *products, struct err *err);
const struct products *product_choices(const struct product_engine *engine);

/* A product with the algorithms that may be used for it, at most `most`, as the library orders them: there may be none. NULL on error.
 * Of the engine nothing is changed. */
struct product_trial *product_trial_create(struct product_engine *engine, const struct product *product, int most, struct err *err);
int product_trial_count(const struct product_trial *trial);
/* As product_launch, by one of them. */
int product_trial_run(struct product_trial *trial, int algorithm, const struct product_operands *operands, void *stream, struct err *err);
/* Makes one of them, or none (-1), the choice of the engine, which had none. */
int product_trial_keep(struct product_trial *trial, int algorithm, struct err *err);
/* NULL is allowed. */
void product_trial_destroy(struct product_trial *trial);

/* Whether product_launch can make it, epilogue included; chooses where that was not done. */
bool product_is_there(struct product_engine *engine, const struct product *product, struct err *err);
/* Queues it on the stream (cudaStream_t). */
int product_launch(struct product_engine *engine, const struct product *product, const struct product_operands *operands, void *stream,
	struct err *err);

#endif
