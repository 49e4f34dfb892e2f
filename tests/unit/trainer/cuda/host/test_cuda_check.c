/* SPDX-License-Identifier: Apache-2.0 */
/* check: what failed, where, in whose words, and what mends it. The runtime's words need no GPU. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#ifdef HAVE_CUDA
#include <cuda_runtime_api.h>

#include "trainer/cuda/host/attention_cudnn.h"
#include "trainer/cuda/host/check.h"

static void no_error_is_none(void **state)
{
	struct err err = { .text = "untouched" };
	assert_int_equal(CUDA_CHECK(cudaSuccess, &err), 0);
	assert_int_equal(cuda_check_words("nccl", 0, "no error", "call()", "file", 1, &err), 0);
	assert_string_equal(err.text, "untouched");
}

static void a_failed_call_is_named(void **state)
{
	struct err err;
	assert_int_equal(CUDA_CHECK(cudaErrorNoKernelImageForDevice, &err), -1);
	assert_int_equal(err.status, EXIT_FAULT);
	assert_non_null(
		strstr(err.text, "couldn't run cudaErrorNoKernelImageForDevice: no kernel image"));
	assert_non_null(strstr(err.text, "(cudaErrorNoKernelImageForDevice, "));
	assert_non_null(strstr(err.text, "test_cuda_check.c:"));
	assert_non_null(strstr(err.text, "--with-cuda-arch"));
	cuda_check(cudaErrorLaunchTimeout, "kernel", "/home/who/muster/trainer/cuda/ops.c", 7, &err);
	assert_non_null(strstr(err.text, ", trainer/cuda/ops.c:7)"));
	assert_null(strstr(err.text, "/home/who"));
	cuda_check(cudaErrorMemoryAllocation, "call", "file", 7, &err);
	assert_non_null(strstr(err.text, "--microbatch"));
	assert_int_equal(cuda_check_words("nccl", 5, NULL, "ncclSend()", "trainer/x.c", 3, &err), -1);
	assert_string_equal(err.text,
		"nccl: couldn't run ncclSend(): an error without words (5, trainer/x.c:3)");
}

/* Without a driver an allocation fails with another error than that of full memory, and nothing is
 * left behind. */
static void an_allocation_fails_in_words(void **state)
{
	struct err err;
	int devices = 0;
	if (cudaGetDeviceCount(&devices) == cudaSuccess) {
		void *much = cuda_check_alloc((size_t)1 << 50, "a test", &err);
		assert_null(much);
		assert_non_null(strstr(err.text, "couldn't get 1125899906.8 MB on the GPU for a test"));
		assert_int_equal(cudaGetLastError(), cudaSuccess);
		return;
	}
	assert_null(cuda_check_alloc(1000, "a test", &err));
	assert_non_null(strstr(err.text, "cuda: couldn't run "));
}

#ifdef HAVE_CUBLAS
/* Where it was not built in, where it can't be loaded, and where there is no GPU for it. */
static void cudnn_that_is_not_there_is_told(void **state)
{
	struct err err = { 0 };
	struct attention_cudnn *attention = attention_cudnn_create(1, 16, 64, 1, &err);
	if (attention) {
		attention_cudnn_destroy(attention);
		skip();
	}
	assert_int_equal(err.status, EXIT_USAGE);
	assert_int_equal(strncmp(err.text, "cudnn: ", 7), 0);
	assert_non_null(strstr(err.text, "leave --attention cudnn out"));
	attention_cudnn_destroy(NULL);
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
#ifdef HAVE_CUBLAS
		cmocka_unit_test(cudnn_that_is_not_there_is_told),
#endif
		cmocka_unit_test(no_error_is_none),
		cmocka_unit_test(a_failed_call_is_named),
		cmocka_unit_test(an_allocation_fails_in_words),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
#include "tests/unit/skip_main.h"

SKIP_MAIN("this build has no CUDA")
#endif
