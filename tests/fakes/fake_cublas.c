/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fakes/fake_cublas.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/bytes.h"
#include "tests/fakes/fake_stream.h"

#pragma weak fake_stream_queue /* without a stand-in of the runtime products are computed at once \
								*/

#define MAGIC 0x6d75737465723031u
#define WORKSPACE_MOST ((size_t)32 << 20)

struct fake_cublas fake_cublas;

/* What the library's opaque pointers point at. */
struct desc {
	cublasComputeType_t compute;
	cudaDataType_t scale;
	cublasOperation_t a, b;
	cublasLtEpilogue_t epilogue;
	const void *bias;
	cudaDataType_t bias_type;
	void *aux;
	int64_t aux_ld;
};

struct layout {
	cudaDataType type;
	uint64_t rows, columns;
	int64_t ld;
};

struct preference {
	size_t workspace;
	uint32_t schemes, alignment[4];
};

static void *make(size_t size)
{
	fake_cublas.objects++;
	return calloc(1, size);
}

static cublasStatus_t end(void *object)
{
	fake_cublas.objects--;
	free(object);
	return CUBLAS_STATUS_SUCCESS;
}

static size_t version(void)
{
	return fake_cublas.version ? fake_cublas.version : 130001;
}
static const char *status_string(cublasStatus_t status)
{
	return status == CUBLAS_STATUS_INVALID_VALUE ? "invalid value" : "status";
}
static cublasStatus_t create(cublasLtHandle_t *handle)
{
	return (*handle = make(1)) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}
static cublasStatus_t destroy(cublasLtHandle_t handle)
{
	return end(handle);
}

static cublasStatus_t desc_create(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
	cudaDataType_t scale)
{
	struct desc *desc = make(sizeof *desc);
	*desc = (struct desc) { .compute = compute,
		.scale = scale,
		.a = CUBLAS_OP_N,
		.b = CUBLAS_OP_N,
		.epilogue = CUBLASLT_EPILOGUE_DEFAULT };
	*out = (cublasLtMatmulDesc_t)(void *)desc;
	return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t desc_destroy(cublasLtMatmulDesc_t desc)
{
	return end(desc);
}

static cublasStatus_t take(void *field, size_t field_size, const void *value, size_t size)
{
	if (size != field_size)
		return CUBLAS_STATUS_INVALID_VALUE;
	memcpy(field, value, size);
	return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t desc_set(cublasLtMatmulDesc_t opaque,
	cublasLtMatmulDescAttributes_t attribute, const void *value, size_t size)
{
	struct desc *desc = (struct desc *)(void *)opaque;
#define FIELD(name) take(&desc->name, sizeof desc->name, value, size)
	switch ((int)attribute) {
	case CUBLASLT_MATMUL_DESC_TRANSA: return FIELD(a);
	case CUBLASLT_MATMUL_DESC_TRANSB: return FIELD(b);
	case CUBLASLT_MATMUL_DESC_EPILOGUE: return FIELD(epilogue);
	case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return FIELD(bias);
	case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: return FIELD(bias_type);
	case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER: return FIELD(aux);
	case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD: return FIELD(aux_ld);
	}
#undef FIELD
	return CUBLAS_STATUS_NOT_SUPPORTED;
}

static cublasStatus_t layout_create(cublasLtMatrixLayout_t *out, cudaDataType type, uint64_t rows,
	uint64_t columns, int64_t ld)
{
	struct layout *layout = make(sizeof *layout);
	*layout = (struct layout) { type, rows, columns, ld };
	*out = (cublasLtMatrixLayout_t)(void *)layout;
	return ld >= (int64_t)rows ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

static cublasStatus_t layout_destroy(cublasLtMatrixLayout_t layout)
{
	return end(layout);
}

static cublasStatus_t preference_create(cublasLtMatmulPreference_t *out)
{
	*out = (cublasLtMatmulPreference_t)make(sizeof(struct preference));
	return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t preference_destroy(cublasLtMatmulPreference_t preference)
{
	return end(preference);
}

static cublasStatus_t preference_set(cublasLtMatmulPreference_t opaque,
	cublasLtMatmulPreferenceAttributes_t attribute, const void *value, size_t size)
{
	struct preference *preference = (struct preference *)(void *)opaque;
	int first = CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, at = (int)attribute - first;
	if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
		return take(&preference->workspace, sizeof preference->workspace, value, size);
	if (attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK)
		return take(&preference->schemes, sizeof preference->schemes, value, size);
	return at >= 0 && at < 4
		? take(&preference->alignment[at], sizeof preference->alignment[at], value, size)
		: CUBLAS_STATUS_NOT_SUPPORTED;
}

/* ---- algorithms ---- */

static int place_of(cublasLtEpilogue_t epilogue)
{
	static const cublasLtEpilogue_t epilogues[FAKE_EPILOGUES] = { CUBLASLT_EPILOGUE_DEFAULT,
		CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_GELU_AUX_BIAS, CUBLASLT_EPILOGUE_RELU_BIAS,
		CUBLASLT_EPILOGUE_DGELU, CUBLASLT_EPILOGUE_BGRADA };
	for (int i = 0; i < FAKE_EPILOGUES; i++)
		if (epilogues[i] == epilogue)
			return i;
	return -1;
}

/* Rows, columns and depth by the descriptors; false where they contradict each other. */
struct extent {
	uint64_t m, n, k;
};

static bool extent_of(const struct desc *desc, const struct layout *a, const struct layout *b,
	const struct layout *d, struct extent *e)
{
	bool ta = desc->a == CUBLAS_OP_T, tb = desc->b == CUBLAS_OP_T;
	*e = (struct extent) { d->rows, d->columns, ta ? a->rows : a->columns };
	return (ta ? a->columns : a->rows) == e->m && (tb ? b->columns : b->rows) == e->k
		&& (tb ? b->rows : b->columns) == e->n && a->type == b->type && desc->scale == CUDA_R_32F
		&& (desc->compute == CUBLAS_COMPUTE_32F || desc->compute == CUBLAS_COMPUTE_32F_FAST_TF32);
}

static cublasStatus_t heuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc_at,
	cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
	cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference_at, int most,
	cublasLtMatmulHeuristicResult_t *results, int *count)
{
	const struct desc *desc = (const struct desc *)(void *)desc_at;
	const struct preference *preference = (const struct preference *)(void *)preference_at;
	int place = place_of(desc->epilogue);
	struct extent e;
	fake_cublas.heuristics++;
	*count = 0;
	if (!handle || place < 0 || !extent_of(desc, (void *)a, (void *)b, (void *)d, &e)
		|| preference->workspace != WORKSPACE_MOST
		|| preference->schemes
			!= (CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)
		|| c != d)
		return CUBLAS_STATUS_INVALID_VALUE;
	for (int i = 0; i < 4; i++)
		if (preference->alignment[i] != 256)
			return CUBLAS_STATUS_INVALID_VALUE;
	if (fake_cublas.no_epilogues >> place & 1)
		return CUBLAS_STATUS_NOT_SUPPORTED;
	for (int i = 0; i < most && i < 4; i++) {
		bool bad = i < fake_cublas.bad_candidates;
		results[i] = (cublasLtMatmulHeuristicResult_t) { .state = CUBLAS_STATUS_SUCCESS,
			.workspaceSize = bad && i % 2 ? WORKSPACE_MOST + 1 : 4096 };
		results[i].algo.data[0] = MAGIC;
		results[i].algo.data[1] = bad && i % 2 == 0 ? CUBLASLT_REDUCTION_SCHEME_INPLACE
			: i % 2                                 ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE
													: 0;
		results[i].algo.data[2] = (uint64_t)i;
		results[i].algo.data[3] = e.m * 1000003 + e.n * 1009 + e.k;
		(*count)++;
	}
	return CUBLAS_STATUS_SUCCESS;
}

static bool is_ours(const cublasLtMatmulAlgo_t *algorithm, const struct extent *e)
{
	return algorithm->data[0] == MAGIC && algorithm->data[3] == e->m * 1000003 + e->n * 1009 + e->k;
}

static cublasStatus_t check(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
	cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
	cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t *algorithm,
	cublasLtMatmulHeuristicResult_t *result)
{
	struct extent e;
	if (fake_cublas.refuses || !extent_of((void *)desc, (void *)a, (void *)b, (void *)d, &e)
		|| !is_ours(algorithm, &e))
		return CUBLAS_STATUS_NOT_SUPPORTED;
	*result =
		(cublasLtMatmulHeuristicResult_t) { .state = CUBLAS_STATUS_SUCCESS, .workspaceSize = 4096 };
	return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t algorithm_get(const cublasLtMatmulAlgo_t *algorithm,
	cublasLtMatmulAlgoConfigAttributes_t attribute, void *value, size_t size, size_t *written)
{
	uint32_t scheme = (uint32_t)algorithm->data[1];
	if (attribute != CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME || size != sizeof scheme)
		return CUBLAS_STATUS_INVALID_VALUE;
	memcpy(value, &scheme, sizeof scheme);
	*written = sizeof scheme;
	return CUBLAS_STATUS_SUCCESS;
}

/* ---- the product ---- */

static double get(const void *at, cudaDataType type, uint64_t index)
{
	return type == CUDA_R_16BF ? (double)bytes_bf16_to_float(((const uint16_t *)at)[index])
							   : (double)((const float *)at)[index];
}

static void put(void *at, cudaDataType type, uint64_t index, double value)
{
	if (type == CUDA_R_16BF)
		((uint16_t *)at)[index] = bytes_float_to_bf16((float)value);
	else
		((float *)at)[index] = (float)value;
}

static double gelu(double x)
{
	return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

static double gelu_slope(double x)
{
	double t = tanh(0.7978845608028654 * (x + 0.044715 * x * x * x));
	return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.7978845608028654 * (1 + 3 * 0.044715 * x * x);
}

static double finish(const struct desc *desc, cudaDataType out, uint64_t row, uint64_t column,
	double value)
{
	uint64_t at = row + column * (uint64_t)desc->aux_ld;
	switch (place_of(desc->epilogue)) {
	case FAKE_BIAS: return value + get(desc->bias, desc->bias_type, row);
	case FAKE_RELU_BIAS: return fmax(0, value + get(desc->bias, desc->bias_type, row));
	case FAKE_GELU_AUX_BIAS:
		value += get(desc->bias, desc->bias_type, row);
		put(desc->aux, out, at, value);
		return gelu(value);
	case FAKE_DGELU: return value * gelu_slope(get(desc->aux, out, at));
	default: return value;
	}
}

static bool aligned(const void *p)
{
	return (uintptr_t)p % 256 == 0;
}

/* What the real one asks of its operands. */
static bool may_run(const struct desc *desc, const struct layout *d, const void *workspace,
	size_t workspace_bytes)
{
	int place = place_of(desc->epilogue);
	bool biased = place == FAKE_BIAS || place == FAKE_RELU_BIAS || place == FAKE_GELU_AUX_BIAS
		|| place == FAKE_BGRADA;
	bool keeps = place == FAKE_GELU_AUX_BIAS || place == FAKE_DGELU;
	if (biased && (!desc->bias || desc->bias_type != d->type))
		return false;
	if (keeps && (!desc->aux || desc->aux_ld < (int64_t)d->rows || desc->aux_ld % 8 != 0))
		return false;
	return workspace && workspace_bytes == WORKSPACE_MOST;
}

/* A product as it was asked for: descriptors may be others' by the time it is computed. */
struct running {
	struct desc desc;
	struct layout a_layout, b_layout, d_layout;
	struct extent e;
	float alpha, beta;
	const void *a, *b;
	void *d;
	int candidate, number; /* of the algorithm, of the product */
};

/* Element [row, k] of op(A). */
static double get_a(const struct running *r, uint64_t row, uint64_t k)
{
	uint64_t ld = (uint64_t)r->a_layout.ld;
	return get(r->a, r->a_layout.type, r->desc.a == CUBLAS_OP_T ? k + row * ld : row + k * ld);
}

static double dot(const struct running *r, uint64_t row, uint64_t column)
{
	uint64_t b_ld = (uint64_t)r->b_layout.ld;
	double sum = 0;
	for (uint64_t k = 0; k < r->e.k; k++) {
		uint64_t at_b = r->desc.b == CUBLAS_OP_T ? column + k * b_ld : k + column * b_ld;
		sum += get_a(r, row, k) * get(r->b, r->b_layout.type, at_b);
	}
	return sum;
}

/* The gradient of a bias: sums over k of op(A), never added to what was there. */
static void sum_a(const struct running *r)
{
	for (uint64_t row = 0; row < r->e.m && place_of(r->desc.epilogue) == FAKE_BGRADA; row++) {
		double sum = 0;
		for (uint64_t k = 0; k < r->e.k; k++)
			sum += get_a(r, row, k);
		put((void *)(uintptr_t)r->desc.bias, r->desc.bias_type, row, sum);
	}
}

/* What the test has a candidate do besides. */
static void pretend(const struct running *r)
{
	unsigned bit = 1u << r->candidate;
	if (fake_cublas.clock && fake_cublas.duration)
		*fake_cublas.clock +=
			fake_cublas.duration(place_of(r->desc.epilogue), r->candidate, r->number);
	if ((fake_cublas.wrong | fake_cublas.wanders) & bit)
		put(r->d, r->d_layout.type, 0,
			fake_cublas.wrong & bit ? 1e6
									: get(r->d, r->d_layout.type, 0) + (r->number % 2 ? 0.125 : 0));
}

static int run(void *arg)
{
	const struct running *r = arg;
	cudaDataType_t type = r->d_layout.type;
	for (uint64_t column = 0; column < r->e.n; column++)
		for (uint64_t row = 0; row < r->e.m; row++) {
			uint64_t at = row + column * (uint64_t)r->d_layout.ld;
			double sum = dot(r, row, column) * (double)r->alpha;
			if (r->beta != 0)
				sum += (double)r->beta * get(r->d, type, at);
			put(r->d, type, at, finish(&r->desc, type, row, column, sum));
		}
	sum_a(r);
	pretend(r);
	return 1;
}

static cublasStatus_t matmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc_at,
	const void *alpha, const void *a, cublasLtMatrixLayout_t a_at, const void *b,
	cublasLtMatrixLayout_t b_at, const void *beta, const void *c, cublasLtMatrixLayout_t c_at,
	void *d, cublasLtMatrixLayout_t d_at, const cublasLtMatmulAlgo_t *algorithm, void *workspace,
	size_t workspace_bytes, cudaStream_t stream)
{
	const struct desc *desc = (const struct desc *)(void *)desc_at;
	const struct layout *al = (void *)a_at, *bl = (void *)b_at, *dl = (void *)d_at;
	struct extent e;
	if (!handle || !extent_of(desc, al, bl, dl, &e) || !is_ours(algorithm, &e)
		|| !may_run(desc, dl, workspace, workspace_bytes) || c != d || c_at != d_at || !aligned(a)
		|| !aligned(b) || !aligned(d))
		return CUBLAS_STATUS_INVALID_VALUE;
	if (fake_cublas.fails >> algorithm->data[2] & 1)
		return CUBLAS_STATUS_EXECUTION_FAILED;
	fake_cublas.plans++;
	const struct running running = { *desc, *al, *bl, *dl, e, *(const float *)alpha,
		*(const float *)beta, a, b, d, (int)algorithm->data[2], fake_cublas.plans };
	struct running *later = malloc(sizeof running);
	*later = running;
	if (fake_stream_queue) {
		fake_stream_queue(stream, run, free, later);
	} else {
		run(later);
		free(later);
	}
	return CUBLAS_STATUS_SUCCESS;
}

const struct cublas fake_cublas_library = {
	.version = version,
	.status_string = status_string,
	.create = create,
	.destroy = destroy,
	.desc_create = desc_create,
	.desc_destroy = desc_destroy,
	.desc_set = desc_set,
	.layout_create = layout_create,
	.layout_destroy = layout_destroy,
	.preference_create = preference_create,
	.preference_destroy = preference_destroy,
	.preference_set = preference_set,
	.heuristic = heuristic,
	.check = check,
	.algorithm_get = algorithm_get,
	.matmul = matmul,
};
