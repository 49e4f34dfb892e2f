/* SPDX-License-Identifier: Apache-2.0 */
/* Words the errors of CUDA and its libraries, with what the user can do about them. */
#include "trainer/cuda/host/check.h"

#include <cuda_runtime_api.h>
#include <string.h>

/* Errors that the user can mend, and how. */
static const struct {
	int code;
	const char *text;
} remedies[] = {
	{ cudaErrorMemoryAllocation,
		"the GPU's memory is full: a smaller --microbatch, --recompute block (of GPT-2), or --zero "
		"1 with several ranks, needs less" },
	{ cudaErrorInsufficientDriver,
		"the driver is older than the CUDA that this program was built with: choose nodes with a "
		"newer one" },
	{ cudaErrorNoDevice,
		"no GPU is visible to this task: ask for one by srun --gpus-per-task=1, or use --device "
		"cpu" },
	{ cudaErrorDevicesUnavailable,
		"another process has the GPU for itself: give each rank its own by --gpus-per-task=1" },
	{ cudaErrorNoKernelImageForDevice,
		"this program has no code for this card: build it with --with-cuda-arch of its compute "
		"capability" },
	{ cudaErrorECCUncorrectable,
		"the GPU's memory is damaged: srun --exclude leaves the node out" },
	{ cudaErrorIllegalAddress,
		"a kernel touched memory that isn't its own: this is a fault of the program, please report "
		"it" },
};

static const char *remedy_of(int code)
{
	for (size_t i = 0; i < sizeof remedies / sizeof remedies[0]; i++)
		if (remedies[i].code == code)
			return remedies[i].text;
	return NULL;
}

/* The path from trainer/ on, without the folders of the build. */
static const char *short_name(const char *file)
{
	const char *at = strstr(file, "trainer/");
	return at ? at : file;
}

int cuda_check(int code, const char *call, const char *file, int line, struct err *err)
{
	const char *remedy = remedy_of(code);
	if (code == 0)
		return 0;
	return err_set(err, "cuda: couldn't run %s: %s (%s, %s:%d)%s%s", call,
		cudaGetErrorString((cudaError_t)code), cudaGetErrorName((cudaError_t)code),
		short_name(file), line, remedy ? ": " : "", remedy ? remedy : "");
}

int cuda_check_words(const char *library, int code, const char *words, const char *call,
	const char *file, int line, struct err *err)
{
	if (code == 0)
		return 0;
	return err_set(err, "%s: couldn't run %s: %s (%d, %s:%d)", library, call,
		words ? words : "an error without words", code, short_name(file), line);
}

void *cuda_check_alloc(size_t bytes, const char *purpose, struct err *err)
{
	size_t available = 0, all = 0;
	void *memory = NULL;
	cudaError_t code = cudaMalloc(&memory, bytes ? bytes : 1);
	if (code == cudaErrorMemoryAllocation) {
		cudaGetLastError(); /* or the next launch would report it */
		cudaMemGetInfo(&available, &all);
		err_fail(err, EXIT_USAGE,
			"memory: couldn't get %.1f MB on the GPU for %s: %.1f of its %.1f MB are free: a "
			"smaller --microbatch, --recompute block (of GPT-2), or --zero 1 with several ranks, "
			"needs less",
			(double)bytes * 1e-6, purpose, (double)available * 1e-6, (double)all * 1e-6);
		return NULL;
	}
	/* Streams that don't wait for the default stream use it. */
	if (cuda_check((int)code, "cudaMalloc(&memory, bytes)", __FILE__, __LINE__, err) < 0
		|| CUDA_CHECK(cudaMemset(memory, 0, bytes), err) < 0
		|| CUDA_CHECK(cudaDeviceSynchronize(), err) < 0) {
		cudaFree(memory);
		return NULL;
	}
	return memory;
}
