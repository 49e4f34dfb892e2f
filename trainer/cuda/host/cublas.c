/* SPDX-License-Identifier: Apache-2.0 */
/* Loads cuBLASLt by its soname, which has the major version that this program was built with. */
#include "trainer/cuda/host/cublas.h"

#include <dlfcn.h>
#include <string.h>

#include "trainer/cuda/host/check.h"

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
#define SONAME "libcublasLt.so." TEXT(CUBLAS_VER_MAJOR)

const struct cublas *cublas_load(struct err *err)
{
	static struct cublas lib;
	const struct {
		const char *name;
		void *pointer;
	} symbols[] = {
		{ "cublasLtGetVersion", &lib.version },
		{ "cublasLtGetStatusString", &lib.status_string },
		{ "cublasLtCreate", &lib.create },
		{ "cublasLtDestroy", &lib.destroy },
		{ "cublasLtMatmulDescCreate", &lib.desc_create },
		{ "cublasLtMatmulDescDestroy", &lib.desc_destroy },
		{ "cublasLtMatmulDescSetAttribute", &lib.desc_set },
		{ "cublasLtMatrixLayoutCreate", &lib.layout_create },
		{ "cublasLtMatrixLayoutDestroy", &lib.layout_destroy },
		{ "cublasLtMatmulPreferenceCreate", &lib.preference_create },
		{ "cublasLtMatmulPreferenceDestroy", &lib.preference_destroy },
		{ "cublasLtMatmulPreferenceSetAttribute", &lib.preference_set },
		{ "cublasLtMatmulAlgoGetHeuristic", &lib.heuristic },
		{ "cublasLtMatmulAlgoCheck", &lib.check },
		{ "cublasLtMatmulAlgoConfigGetAttribute", &lib.algorithm_get },
		{ "cublasLtMatmul", &lib.matmul },
	};
	void *library = dlopen(SONAME, RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		err_fail(err, EXIT_USAGE,
			"cublas: couldn't load cuBLASLt: %s: install it on this node, or put its folder into "
			"LD_LIBRARY_PATH",
			dlerror());
		return NULL;
	}
	for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
		void *symbol = dlsym(library, symbols[i].name);
		memcpy(symbols[i].pointer, &symbol, sizeof symbol);
		if (!symbol) {
			err_fail(err, EXIT_USAGE,
				"cublas: couldn't use the cuBLASLt of this node: it has no %s: install that of "
				"CUDA %d",
				symbols[i].name, CUBLAS_VER_MAJOR);
			return NULL;
		}
	}
	return &lib;
}

int cublas_check(const struct cublas *lib, cublasStatus_t status, const char *call,
	const char *file, int line, struct err *err)
{
	return status == CUBLAS_STATUS_SUCCESS ? 0
										   : cuda_check_words("cublas", (int)status,
											   lib->status_string(status), call, file, line, err);
}
