/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the cuBLASLt descriptors of each product once; a run then only sets addresses. */
#include "trainer/cuda/host/gemm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALIGNMENT 256u
#define KEPT_MULTIPLE 8 /* cuBLASLt's epilogues keep and read only such multiples of columns */
#define CANDIDATES 8    /* asked of the heuristics; the first usable one is chosen */

_Static_assert(sizeof(cublasLtMatmulAlgo_t) == GEMM_WORDS * sizeof(uint64_t),
	"an algorithm is GEMM_WORDS words");

/* A choice in the library's form; it has the same index as in plans.rows. */
struct plan {
	cublasLtMatmulDesc_t desc;
	cublasLtMatrixLayout_t a, b, d;
	cublasLtMatmulAlgo_t algorithm;
};

struct gemm_engine {
	const struct cublas *lib;
	cublasLtHandle_t handle;
	cublasLtMatmulPreference_t preference;
	void *workspace;
	struct gemm_plans plans;
	struct plan *descriptors; /* [plans.count] */
};

static cudaDataType_t type_of(enum gemm_type type)
{
	return type == GEMM_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

static cublasLtEpilogue_t epilogue_of(enum gemm_epilogue epilogue)
{
	static const cublasLtEpilogue_t epilogues[] = {
		[GEMM_PLAIN] = CUBLASLT_EPILOGUE_DEFAULT,
		[GEMM_BIAS] = CUBLASLT_EPILOGUE_BIAS,
		[GEMM_BIAS_GELU] = CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
		[GEMM_BIAS_RELU] = CUBLASLT_EPILOGUE_RELU_BIAS,
		[GEMM_GELU_GRAD] = CUBLASLT_EPILOGUE_DGELU,
		[GEMM_BIAS_GRAD] = CUBLASLT_EPILOGUE_BGRADA, /* their A is our W */
	};
	return epilogues[epilogue];
}

static bool has_bias(const struct gemm *gemm)
{
	return gemm->epilogue >= GEMM_BIAS && gemm->epilogue <= GEMM_BIAS_RELU;
}

static bool has_sums(const struct gemm *gemm)
{
	return gemm->epilogue == GEMM_BIAS_GRAD;
}

static bool keeps(const struct gemm *gemm)
{
	return gemm->epilogue == GEMM_BIAS_GELU || gemm->epilogue == GEMM_GELU_GRAD;
}

static void plan_clear(const struct gemm_engine *engine, struct plan *plan)
{
	if (plan->desc)
		engine->lib->desc_destroy(plan->desc);
	cublasLtMatrixLayout_t layouts[] = { plan->a, plan->b, plan->d };
	for (int i = 0; i < 3; i++)
		if (layouts[i])
			engine->lib->layout_destroy(layouts[i]);
	*plan = (struct plan) { 0 };
}

/* ---- descriptors ---- */

static int set(const struct gemm_engine *engine, struct plan *plan,
	cublasLtMatmulDescAttributes_t attribute, const void *value, size_t size, struct err *err)
{
	return CUBLAS_CHECK(engine->lib, desc_set(plan->desc, attribute, value, size), err);
}

/* Describes a matrix of ours that is stored [rows, columns]. */
static int make_layout(const struct gemm_engine *engine, cublasLtMatrixLayout_t *layout,
	enum gemm_type type, int rows, int columns, struct err *err)
{
	return CUBLAS_CHECK(engine->lib,
		layout_create(layout, type_of(type), (uint64_t)columns, (uint64_t)rows, columns), err);
}

/* Sets the addresses of the epilogue's vector, read or written, and of its matrix. */
static int set_pointers(const struct gemm_engine *engine, struct plan *plan, const struct gemm *p,
	const void *vector, void *kept, struct err *err)
{
	if ((has_bias(p) || has_sums(p))
		&& set(engine, plan, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &vector, sizeof vector, err) < 0)
		return -1;
	return keeps(p)
		? set(engine, plan, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &kept, sizeof kept, err)
		: 0;
}

static int describe_epilogue(const struct gemm_engine *engine, struct plan *plan,
	const struct gemm *p, struct err *err)
{
	cublasLtEpilogue_t epilogue = epilogue_of(p->epilogue);
	cudaDataType_t out = type_of(p->out);
	int64_t ld = p->columns;
	if (set(engine, plan, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue, err) < 0)
		return -1;
	if ((has_bias(p) || has_sums(p))
		&& set(engine, plan, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &out, sizeof out, err) < 0)
		return -1;
	if (keeps(p)
		&& set(engine, plan, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &ld, sizeof ld, err) < 0)
		return -1;
	/* The heuristics look at the alignment of these addresses; each run replaces them. */
	return set_pointers(engine, plan, p, engine->workspace, engine->workspace, err);
}

static int describe(const struct gemm_engine *engine, struct plan *plan, const struct gemm *p,
	struct err *err)
{
	cublasComputeType_t compute =
		engine->plans.mode == GEMM_MODE_TF32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
	cublasOperation_t a = p->w_transposed ? CUBLAS_OP_T : CUBLAS_OP_N,
					  b = p->x_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
	if (CUBLAS_CHECK(engine->lib, desc_create(&plan->desc, compute, CUDA_R_32F), err) < 0
		|| set(engine, plan, CUBLASLT_MATMUL_DESC_TRANSA, &a, sizeof a, err) < 0
		|| set(engine, plan, CUBLASLT_MATMUL_DESC_TRANSB, &b, sizeof b, err) < 0
		|| describe_epilogue(engine, plan, p, err) < 0)
		return -1;
	if (make_layout(engine, &plan->a, p->in, p->w_transposed ? p->columns : p->depth,
			p->w_transposed ? p->depth : p->columns, err)
			< 0
		|| make_layout(engine, &plan->b, p->in, p->x_transposed ? p->depth : p->rows,
			   p->x_transposed ? p->rows : p->depth, err)
			< 0)
		return -1;
	return make_layout(engine, &plan->d, p->out, p->rows, p->columns, err);
}

/* ---- choice ---- */

/* Allows only algorithms that join split sums in fp32 and in a fixed order: no atomics, and no
 * narrower type. */
static bool may_be_used(const struct gemm_engine *engine,
	const cublasLtMatmulHeuristicResult_t *result)
{
	uint32_t scheme = UINT32_MAX;
	size_t written = 0;
	if (result->state != CUBLAS_STATUS_SUCCESS || result->workspaceSize > GEMM_PLANS_WORKSPACE)
		return false;
	if (engine->lib->algorithm_get(&result->algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme,
			sizeof scheme, &written)
		!= CUBLAS_STATUS_SUCCESS)
		return false;
	return scheme == CUBLASLT_REDUCTION_SCHEME_NONE
		|| scheme == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
}

static int keep(struct gemm_engine *engine, const struct plan *plan,
	const struct gemm_choice *choice, struct err *err)
{
	struct plan *descriptors =
		realloc(engine->descriptors, (engine->plans.count + 1) * sizeof *descriptors);
	if (!descriptors)
		return err_set(err, "GEMM plans: out of memory");
	engine->descriptors = descriptors;
	if (gemm_plans_add(&engine->plans, choice, err) < 0)
		return -1;
	descriptors[engine->plans.count - 1] = *plan;
	return 0;
}

static int none_at_all(const struct gemm *gemm, struct err *err)
{
	char text[160];
	return err_set(err,
		"GEMM plans: couldn't find an algorithm for %s: cuBLASLt has none that is deterministic "
		"with a workspace of %zu MiB",
		gemm_text(gemm, text, sizeof text), GEMM_PLANS_WORKSPACE >> 20);
}

/* Finds usable algorithms: the first `count` of the results. */
static int find(struct gemm_engine *engine, struct plan *plan, const struct gemm *gemm,
	cublasLtMatmulHeuristicResult_t *results, int most, int *count, struct err *err)
{
	int found = 0;
	*count = 0;
	if (keeps(gemm) && gemm->columns % KEPT_MULTIPLE != 0)
		return 0;
	if (describe(engine, plan, gemm, err) < 0)
		return -1;
	cublasStatus_t status = engine->lib->heuristic(engine->handle, plan->desc, plan->a, plan->b,
		plan->d, plan->d, engine->preference, most, results, &found);
	/* The library returns various statuses for an epilogue that it lacks for these types. */
	if (status != CUBLAS_STATUS_NOT_SUPPORTED && status != CUBLAS_STATUS_SUCCESS
		&& gemm->epilogue == GEMM_PLAIN)
		return cublas_check(engine->lib, status, "cublasLtMatmulAlgoGetHeuristic", __FILE__,
			__LINE__, err);
	for (int i = 0; i < (status == CUBLAS_STATUS_SUCCESS ? found : 0); i++)
		if (may_be_used(engine, &results[i]))
			results[(*count)++] = results[i];
	return 0;
}

/* Keeps one of the results; NULL: the choice is `none`. */
static int keep_result(struct gemm_engine *engine, struct plan *plan, const struct gemm *gemm,
	const cublasLtMatmulHeuristicResult_t *result, struct err *err)
{
	struct gemm_choice choice = { .gemm = *gemm, .none = !result };
	if (!result && gemm->epilogue == GEMM_PLAIN)
		return none_at_all(gemm, err);
	if (result) {
		choice.workspace = result->workspaceSize;
		memcpy(choice.algorithm, &result->algo, sizeof choice.algorithm);
		plan->algorithm = result->algo;
	}
	return keep(engine, plan, &choice, err);
}

static int choose(struct gemm_engine *engine, struct plan *plan, const struct gemm *gemm,
	struct err *err)
{
	cublasLtMatmulHeuristicResult_t results[CANDIDATES];
	int count = 0;
	if (!has_sums(gemm) && find(engine, plan, gemm, results, CANDIDATES, &count, err) < 0)
		return -1;
	return keep_result(engine, plan, gemm, count ? &results[0] : NULL, err);
}

int gemm_choose(struct gemm_engine *engine, const struct gemm *gemm, struct err *err)
{
	struct plan plan = { 0 };
	if (gemm_plans_find(&engine->plans, gemm))
		return 0;
	if (choose(engine, &plan, gemm, err) == 0)
		return 0;
	plan_clear(engine, &plan);
	return -1;
}

static int take_over(struct gemm_engine *engine, struct plan *plan,
	const struct gemm_choice *choice, struct err *err)
{
	cublasLtMatmulHeuristicResult_t result = { 0 };
	char text[160];
	if (choice->none)
		return keep(engine, plan, choice, err);
	if (describe(engine, plan, &choice->gemm, err) < 0)
		return -1;
	memcpy(&plan->algorithm, choice->algorithm, sizeof plan->algorithm);
	cublasStatus_t status = engine->lib->check(engine->handle, plan->desc, plan->a, plan->b,
		plan->d, plan->d, &plan->algorithm, &result);
	result.algo = plan->algorithm;
	if (status != CUBLAS_STATUS_SUCCESS || !may_be_used(engine, &result))
		return err_fail(err, EXIT_DATA,
			"GEMM plans: cuBLASLt doesn't take the algorithm that was chosen for %s",
			gemm_text(&choice->gemm, text, sizeof text));
	return keep(engine, plan, choice, err);
}

static void forget(struct gemm_engine *engine)
{
	for (size_t i = 0; i < engine->plans.count; i++)
		plan_clear(engine, &engine->descriptors[i]);
	free(engine->descriptors);
	engine->descriptors = NULL;
	free(engine->plans.rows);
	engine->plans.rows = NULL;
	engine->plans.count = 0;
}

int gemm_adopt(struct gemm_engine *engine, const struct gemm_plans *plans, struct err *err)
{
	const struct gemm_plans *own = &engine->plans;
	if (gemm_plans_fit(plans, own->library, own->mode, own->card, err) < 0)
		return -1;
	forget(engine);
	for (size_t i = 0; i < plans->count; i++) {
		struct plan plan = { 0 };
		if (take_over(engine, &plan, &plans->rows[i], err) == 0)
			continue;
		plan_clear(engine, &plan);
		forget(engine);
		return -1;
	}
	return 0;
}

const struct gemm_plans *gemm_choices(const struct gemm_engine *engine)
{
	return &engine->plans;
}

/* ---- a run ---- */

bool gemm_is_there(struct gemm_engine *engine, const struct gemm *gemm, struct err *err)
{
	if (gemm_choose(engine, gemm, err) < 0)
		return false;
	return !gemm_plans_find(&engine->plans, gemm)->none;
}

static int launch(struct gemm_engine *engine, struct plan *plan, const struct gemm *gemm,
	const struct gemm_operands *o, void *stream, struct err *err)
{
	static const float one = 1, zero = 0;
	if (set_pointers(engine, plan, gemm, has_sums(gemm) ? o->sums : o->bias, o->kept, err) < 0)
		return -1;
	return CUBLAS_CHECK(engine->lib,
		matmul(engine->handle, plan->desc, &one, o->w, plan->a, o->x, plan->b,
			gemm->adds ? &one : &zero, o->d, plan->d, o->d, plan->d, &plan->algorithm,
			engine->workspace, GEMM_PLANS_WORKSPACE, (cudaStream_t)stream),
		err);
}

int gemm_launch(struct gemm_engine *engine, const struct gemm *gemm, const struct gemm_operands *o,
	void *stream, struct err *err)
{
	if (gemm_choose(engine, gemm, err) < 0)
		return -1;
	const struct gemm_choice *choice = gemm_plans_find(&engine->plans, gemm);
	if (choice->none)
		return none_at_all(gemm, err);
	return launch(engine, &engine->descriptors[choice - engine->plans.rows], gemm, o, stream, err);
}

/* ---- trials ---- */

struct gemm_trial {
	struct gemm_engine *engine;
	struct gemm gemm;
	struct plan plan;
	int count;
	cublasLtMatmulHeuristicResult_t results[];
};

struct gemm_trial *gemm_trial_create(struct gemm_engine *engine, const struct gemm *gemm, int most,
	struct err *err)
{
	struct gemm_trial *trial = calloc(1, sizeof *trial + (size_t)most * sizeof trial->results[0]);
	if (!trial) {
		err_set(err, "GEMM plans: out of memory");
		return NULL;
	}
	trial->engine = engine;
	trial->gemm = *gemm;
	if (find(engine, &trial->plan, gemm, trial->results, most, &trial->count, err) == 0)
		return trial;
	gemm_trial_destroy(trial);
	return NULL;
}

int gemm_trial_count(const struct gemm_trial *trial)
{
	return trial->count;
}

int gemm_trial_run(struct gemm_trial *trial, int algorithm, const struct gemm_operands *o,
	void *stream, struct err *err)
{
	trial->plan.algorithm = trial->results[algorithm].algo;
	return launch(trial->engine, &trial->plan, &trial->gemm, o, stream, err);
}

int gemm_trial_keep(struct gemm_trial *trial, int algorithm, struct err *err)
{
	if (keep_result(trial->engine, &trial->plan, &trial->gemm,
			algorithm < 0 ? NULL : &trial->results[algorithm], err)
		< 0)
		return -1;
	trial->plan = (struct plan) { 0 }; /* now owned by the engine */
	return 0;
}

void gemm_trial_destroy(struct gemm_trial *trial)
{
	if (!trial)
		return;
	plan_clear(trial->engine, &trial->plan);
	free(trial);
}

/* ---- the engine ---- */

static int prefer(const struct gemm_engine *engine, cublasLtMatmulPreferenceAttributes_t attribute,
	const void *value, size_t size, struct err *err)
{
	return CUBLAS_CHECK(engine->lib, preference_set(engine->preference, attribute, value, size),
		err);
}

static int prepare(struct gemm_engine *engine, struct err *err)
{
	static const cublasLtMatmulPreferenceAttributes_t alignments[] = {
		CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
		CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES
	};
	const size_t workspace = GEMM_PLANS_WORKSPACE;
	const uint32_t schemes =
					   CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE,
				   alignment = ALIGNMENT;
	if (CUBLAS_CHECK(engine->lib, create(&engine->handle), err) < 0
		|| CUBLAS_CHECK(engine->lib, preference_create(&engine->preference), err) < 0
		|| prefer(engine, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace,
			   err)
			< 0
		|| prefer(engine, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes, err)
			< 0)
		return -1;
	for (int i = 0; i < 4; i++)
		if (prefer(engine, alignments[i], &alignment, sizeof alignment, err) < 0)
			return -1;
	return 0;
}

struct gemm_engine *gemm_engine_create(const struct cublas *lib, enum gemm_mode mode,
	const char *card, void *workspace, struct err *err)
{
	struct gemm_engine *engine = calloc(1, sizeof *engine);
	if (!engine) {
		err_set(err, "GEMM plans: out of memory");
		return NULL;
	}
	engine->lib = lib;
	engine->workspace = workspace;
	engine->plans.library = lib->version();
	engine->plans.mode = mode;
	snprintf(engine->plans.card, sizeof engine->plans.card, "%.127s", card);
	for (char *p = engine->plans.card; *p; p++)
		*p = *p == ';' ? ',' : *p;
	if (prepare(engine, err) == 0)
		return engine;
	gemm_engine_destroy(engine);
	return NULL;
}

void gemm_engine_destroy(struct gemm_engine *engine)
{
	if (!engine)
		return;
	forget(engine);
	if (engine->preference)
		engine->lib->preference_destroy(engine->preference);
	if (engine->handle)
		engine->lib->destroy(engine->handle);
	free(engine);
}
