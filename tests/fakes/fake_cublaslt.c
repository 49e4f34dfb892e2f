/* SPDX-License-Identifier: Apache-2.0 */
/* tests/fakes/fake_cublas.c as a library that a program finds by LD_LIBRARY_PATH, under the name of
 * the true one. The environment says what it is to do:
 *     FAKE_CUBLAS_VERSION=N    its version, instead of 130001
 *     FAKE_CUBLAS_SKIP=N       the first N of its algorithms may not be used, so another is chosen
 */
#pragma GCC visibility push(default)
#include <cublasLt.h>
#pragma GCC visibility pop
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fakes/fake_cublas.h"
#include "tests/fakes/fake_stream.h"

/* By the program's streams (train_shim.c). */
void fake_stream_queue(void *stream, fake_step *step, void (*drop)(void *), void *arg)
{
	void (*queue)(void *stream, fake_step *step, void (*drop)(void *), void *arg) = NULL;
	void *symbol = dlsym(RTLD_DEFAULT, "train_shim_queue");
	memcpy(&queue, &symbol, sizeof queue);
	if (!queue)
		abort();
	queue(stream, step, drop, arg);
}

__attribute__((constructor)) static void begin(void)
{
	const char *version = getenv("FAKE_CUBLAS_VERSION"), *skip = getenv("FAKE_CUBLAS_SKIP");
	fake_cublas.version = version ? strtoull(version, NULL, 10) : 0;
	fake_cublas.bad_candidates = skip ? atoi(skip) : 0;
}

size_t cublasLtGetVersion(void)
{
	return fake_cublas_library.version();
}

const char *cublasLtGetStatusString(cublasStatus_t status)
{
	return fake_cublas_library.status_string(status);
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
	return fake_cublas_library.create(handle);
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
	return fake_cublas_library.destroy(handle);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc, cublasComputeType_t compute,
	cudaDataType_t scale)
{
	return fake_cublas_library.desc_create(desc, compute, scale);
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
	return fake_cublas_library.desc_destroy(desc);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
	cublasLtMatmulDescAttributes_t attribute, const void *value, size_t size)
{
	return fake_cublas_library.desc_set(desc, attribute, value, size);
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType type,
	uint64_t rows, uint64_t columns, int64_t ld)
{
	return fake_cublas_library.layout_create(layout, type, rows, columns, ld);
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
	return fake_cublas_library.layout_destroy(layout);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference)
{
	return fake_cublas_library.preference_create(preference);
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
	return fake_cublas_library.preference_destroy(preference);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
	cublasLtMatmulPreferenceAttributes_t attribute, const void *value, size_t size)
{
	return fake_cublas_library.preference_set(preference, attribute, value, size);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
	cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
	cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference, int most,
	cublasLtMatmulHeuristicResult_t *results, int *count)
{
	return fake_cublas_library.heuristic(handle, desc, a, b, c, d, preference, most, results,
		count);
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
	cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
	cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t *algorithm,
	cublasLtMatmulHeuristicResult_t *result)
{
	return fake_cublas_library.check(handle, desc, a, b, c, d, algorithm, result);
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algorithm,
	cublasLtMatmulAlgoConfigAttributes_t attribute, void *value, size_t size, size_t *written)
{
	return fake_cublas_library.algorithm_get(algorithm, attribute, value, size, written);
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
	const void *a, cublasLtMatrixLayout_t a_layout, const void *b, cublasLtMatrixLayout_t b_layout,
	const void *beta, const void *c, cublasLtMatrixLayout_t c_layout, void *d,
	cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algorithm, void *workspace,
	size_t workspace_bytes, cudaStream_t stream)
{
	return fake_cublas_library.matmul(handle, desc, alpha, a, a_layout, b, b_layout, beta, c,
		c_layout, d, d_layout, algorithm, workspace, workspace_bytes, stream);
}
