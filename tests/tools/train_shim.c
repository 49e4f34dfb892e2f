/* SPDX-License-Identifier: Apache-2.0 */
/* muster-train, built once more for machines without a GPU: kernels run on the host by the shim,
 * and the CUDA runtime is tests/fakes/fake_runtime.c. The driver and cuBLASLt are libraries that
 * LD_LIBRARY_PATH finds (fake_driver.c, fake_cublaslt.c). The environment says what the card does:
 *     FAKE_GPU_MEMORY=BYTES    that it has (any number of them)
 *     FAKE_GPU_TAKEN=BYTES     of these, what others take once it has been asked how many are free
 *     FAKE_GPU_ORDER=N         the order in which threads and blocks run, 0 to 4
 *     FAKE_GPU_STREAMS=N       when streams run: 0 at once, 1 as late as may be, 2 at random
 *     FAKE_GPU_FAIL=N[@RANK]   the Nth kernel or copy (of that rank) fails, and all after it
 *     FAKE_GPU_UNREADY=N       the first N questions whether copies are done are answered by no
 *     FAKE_GPU_PINS=N          this many pieces of the host's memory are pinned, and no more
 *     FAKE_CUDNN=steady        cuDNN's attention is there (tests/fakes/fake_attention.c); unsteady:
 * it comes to other bits each time; steady@RANK: only that rank has it FAKE_GPU_WORKS=FILE has, at
 * the end, how many kernels and copies there were
 */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fakes/fake_attention.h"
#include "tests/fakes/fake_runtime.h"
#include "tests/fakes/fake_stream.h"
#include "tests/shim/grid.h"

static size_t number(const char *name)
{
	return getenv(name) ? strtoull(getenv(name), NULL, 10) : 0;
}

/* The number before '@', unless another rank's follows it. */
static long number_here(const char *name)
{
	const char *value = getenv(name), *other = value ? strchr(value, '@') : NULL,
			   *rank = getenv("RANK");
	return !value || (other && (!rank || strcmp(other + 1, rank) != 0)) ? 0
																		: strtol(value, NULL, 10);
}

static void tell_works(void)
{
	FILE *file = fopen(getenv("FAKE_GPU_WORKS"), "w");
	if (file) {
		fprintf(file, "%ld\n", fake_runtime.works);
		fclose(file);
	}
}

static void begin_cudnn(void)
{
	const char *value = getenv("FAKE_CUDNN"), *of = value ? strchr(value, '@') : NULL,
			   *rank = getenv("RANK");
	fake_attention.absent = !value || (of && (!rank || strcmp(of + 1, rank) != 0));
	fake_attention.unsteady = value && strcmp(value, "unsteady") == 0;
}

__attribute__((constructor)) static void begin(void)
{
	fake_runtime.devices = 64;
	fake_runtime.most = number("FAKE_GPU_MEMORY");
	fake_runtime.taken = number("FAKE_GPU_TAKEN");
	fake_runtime.fail_at = number_here("FAKE_GPU_FAIL");
	fake_runtime.failure = cudaErrorLaunchFailure;
	fake_runtime.unready = (int)number("FAKE_GPU_UNREADY");
	fake_runtime.registers_fail = getenv("FAKE_GPU_PINS") ? cudaErrorMemoryAllocation : 0;
	fake_runtime.registers_left = (int)number("FAKE_GPU_PINS");
	begin_cudnn();
	grid_order((int)number("FAKE_GPU_ORDER"));
	fake_stream_order((enum fake_order)number("FAKE_GPU_STREAMS"), 1);
	if (getenv("FAKE_GPU_WORKS"))
		atexit(tell_works);
}

/* For the stand-in of cuBLASLt, which is a library of its own: products are queued on this
 * program's streams. */
__attribute__((visibility("default"))) void train_shim_queue(void *stream, fake_step *step,
	void (*drop)(void *), void *arg);

void train_shim_queue(void *stream, fake_step *step, void (*drop)(void *), void *arg)
{
	fake_stream_queue(stream, step, drop, arg);
}
