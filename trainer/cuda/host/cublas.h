/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of cuBLASLt that are used. They are looked up only when a run computes on a GPU:
 * loading the library takes most of a second and a GB of address space, and programs must start
 * without it. */
#ifndef MUSTER_CUDA_CUBLAS_H
#define MUSTER_CUDA_CUBLAS_H

#include <cublasLt.h>

#include "common/err.h"

struct cublas {
	size_t (*version)(void);
	const char *(*status_string)(cublasStatus_t status);
	cublasStatus_t (*create)(cublasLtHandle_t *handle);
	cublasStatus_t (*destroy)(cublasLtHandle_t handle);
	cublasStatus_t (*desc_create)(cublasLtMatmulDesc_t *desc, cublasComputeType_t compute,
		cudaDataType_t scale);
	cublasStatus_t (*desc_destroy)(cublasLtMatmulDesc_t desc);
	cublasStatus_t (*desc_set)(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
		const void *value, size_t size);
	cublasStatus_t (*layout_create)(cublasLtMatrixLayout_t *layout, cudaDataType type,
		uint64_t rows, uint64_t columns, int64_t ld);
	cublasStatus_t (*layout_destroy)(cublasLtMatrixLayout_t layout);
	cublasStatus_t (*preference_create)(cublasLtMatmulPreference_t *preference);
	cublasStatus_t (*preference_destroy)(cublasLtMatmulPreference_t preference);
	cublasStatus_t (*preference_set)(cublasLtMatmulPreference_t preference,
		cublasLtMatmulPreferenceAttributes_t attribute, const void *value, size_t size);
	cublasStatus_t (*heuristic)(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
		cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
		cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference, int most,
		cublasLtMatmulHeuristicResult_t *results, int *count);
	cublasStatus_t (*check)(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
		cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
		cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t *algorithm,
		cublasLtMatmulHeuristicResult_t *result);
	cublasStatus_t (*algorithm_get)(const cublasLtMatmulAlgo_t *algorithm,
		cublasLtMatmulAlgoConfigAttributes_t attribute, void *value, size_t size, size_t *written);
	cublasStatus_t (*matmul)(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
		const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
		cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
		cublasLtMatrixLayout_t c_layout, void *d, cublasLtMatrixLayout_t d_layout,
		const cublasLtMatmulAlgo_t *algorithm, void *workspace, size_t workspace_bytes,
		cudaStream_t stream);
};

/* Loads this node's library; NULL with the remedy in `err` where there is none. */
const struct cublas *cublas_load(struct err *err);

/* As CUDA_CHECK. */
#define CUBLAS_CHECK(lib, call, err) cublas_check(lib, (lib)->call, #call, __FILE__, __LINE__, err)
int cublas_check(const struct cublas *lib, cublasStatus_t status, const char *call,
	const char *file, int line, struct err *err);

#endif
