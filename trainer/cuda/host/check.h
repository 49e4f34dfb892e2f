/* SPDX-License-Identifier: Apache-2.0 */
/* Every call of CUDA's libraries is checked: what failed, where, and in the library's own words. */
#ifndef MUSTER_CUDA_CHECK_H
#define MUSTER_CUDA_CHECK_H

#include <stddef.h>

#include "common/err.h"

#ifdef __cplusplus
extern "C" {
#endif

/* 0, or -1 with "cuda: couldn't run CALL: WORDS (NAME, FILE:LINE)" and a remedy where there is one.
 * A kernel's launcher, which returns a cudaError_t as int, is checked so, too. */
#define CUDA_CHECK(call, err) cuda_check((int)(call), #call, __FILE__, __LINE__, err)

int cuda_check(int code, const char *call, const char *file, int line, struct err *err);

/* `words` is what the library calls the code (ncclGetErrorString, cublasLtGetStatusString);
 * `library` "nccl", "cublas". 0 for code 0. */
int cuda_check_words(const char *library, int code, const char *words, const char *call,
	const char *file, int line, struct err *err);

/* Device memory: NULL and an error that says what was asked for, for what, how much there is, and
 * which flags lower it. Zeroed, at least 256-byte aligned; given back by cudaFree. */
void *cuda_check_alloc(size_t bytes, const char *purpose, struct err *err);

#ifdef __cplusplus
}
#endif

#endif
