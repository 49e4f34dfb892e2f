/* SPDX-License-Identifier: Apache-2.0 */
/* Checks calls of CUDA's libraries: an error names the call, its place, and the library's own
 * words. */
#ifndef MUSTER_CUDA_CHECK_H
#define MUSTER_CUDA_CHECK_H

#include <stddef.h>

#include "common/err.h"

#ifdef __cplusplus
extern "C" {
#endif

/* 0, or -1 with "cuda: couldn't run CALL: WORDS (NAME, FILE:LINE)" and a remedy where there is one.
 * Also for a kernel's launcher, which returns a cudaError_t as int. */
#define CUDA_CHECK(call, err) cuda_check((int)(call), #call, __FILE__, __LINE__, err)

int cuda_check(int code, const char *call, const char *file, int line, struct err *err);

/* The same for another library: `words` are its own for the code (ncclGetErrorString,
 * cublasLtGetStatusString), `library` is "nccl" or "cublas". 0 for code 0. */
int cuda_check_words(const char *library, int code, const char *words, const char *call,
	const char *file, int line, struct err *err);

/* Allocates device memory, zeroed and at least 256-byte aligned; release it with cudaFree. NULL
 * with an error that says how much was wanted, for what, how much there is, and which options lower
 * it. */
void *cuda_check_alloc(size_t bytes, const char *purpose, struct err *err);

#ifdef __cplusplus
}
#endif

#endif
