/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the GPU's table of operations: their memory and the choice of GEMM plans. */
#include "trainer/cuda/host/ops_cuda.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/log.h"
#include "trainer/cuda/host/attention_cudnn.h"
#include "trainer/cuda/host/device_cuda.h"
#include "trainer/cuda/host/ops_cuda_private.h"
#include "trainer/cuda/host/tune.h"
#include "trainer/cuda/kernels/attention.h"
#include "trainer/cuda/kernels/column_sums.h"
#include "trainer/cuda/kernels/elements.h"
#include "trainer/cuda/kernels/embedding.h"
#include "trainer/cuda/kernels/head.h"
#include "trainer/cuda/kernels/norm.h"

/* Copies from pinned memory, so that the host does not wait. The ring has room for many steps, and
 * the host waits for the device in each step, so no place is overwritten too early. */
static void put_params(struct ops *ops)
{
	struct ops_cuda *cuda = ops_cuda_of(ops);
	struct step_params *place = &cuda->params_ring[cuda->params_next++ % CUDA_PARAMS];
	*place = cuda->params;
	CUDA_RUN(ops->device,
		cudaMemcpyAsync(cuda->params_device, place, sizeof *place, cudaMemcpyHostToDevice,
			cuda->stream));
}

static void cast(struct ops *ops, float *compute, const float *weights, size_t count)
{
	CUDA_RUN(ops->device, cuda_to_bf16(compute, weights, count, ops_cuda_of(ops)->stream));
}

/* ---- shapes ---- */

static size_t larger(size_t a, size_t b)
{
	return a > b ? a : b;
}

static int rows_of(const struct ops_shapes *shapes)
{
	return shapes->batch * (shapes->positions ? shapes->positions : 1);
}

/* Bytes of scratch for the op that needs most. */
static size_t scratch_of(const struct ops_shapes *s)
{
	int M = rows_of(s), N = s->hidden > 3 * s->width ? s->hidden : 3 * s->width;
	size_t most = cuda_column_sums_scratch(M, N > s->vocabulary || s->heads ? N : s->vocabulary)
		* sizeof(float);
	if (!s->heads)
		return most;
	most = larger(most, cuda_layernorm_scratch(M, s->width) * sizeof(float));
	most = larger(most, cuda_embedding_scratch(M));
	return larger(most, cuda_attention_scratch(s->batch, s->positions, s->heads));
}

static size_t logits_of(const struct ops_shapes *s, enum gemm_mode mode)
{
	size_t M = (size_t)rows_of(s), P = OPS_VOCABULARY_ROWS((size_t)s->vocabulary),
		   bytes = mode == GEMM_MODE_BF16 ? 2 : 4;
	return s->heads ? head_chunk_rows(M, P, bytes) * P * bytes : 0;
}

size_t ops_cuda_scratch(const struct ops_shapes *shapes, enum gemm_mode mode)
{
	return GEMM_PLANS_WORKSPACE + sizeof(struct step_params) + scratch_of(shapes)
		+ logits_of(shapes, mode);
}

static void *again(void *memory, size_t bytes, const char *purpose, struct err *err)
{
	cudaFree(memory);
	return cuda_check_alloc(bytes, purpose, err);
}

static int prepare(struct ops *ops, const struct ops_shapes *shapes, struct err *err)
{
	struct ops_cuda *cuda = ops_cuda_of(ops);
	if (!cuda_begin(ops->device))
		return cuda_first_error(ops->device, err);
	cuda->shapes = *shapes;
	cuda->scratch = again(cuda->scratch, scratch_of(shapes), "sums of the backward pass", err);
	if (!cuda->scratch)
		return -1;
	cuda->logits = again(cuda->logits, logits_of(shapes, cuda->mode), "the logits", err);
	return cuda->logits ? 0 : -1;
}

/* ---- GEMM plans ---- */

static int choose(struct ops *ops, struct err *err)
{
	struct ops_cuda *cuda = ops_cuda_of(ops);
	struct gemm list[64];
	size_t count = gemm_plans_of(&cuda->shapes, cuda->mode, list, sizeof list / sizeof list[0]);
	for (size_t i = 0; i < count; i++) {
		struct gemm plain = list[i];
		if (gemm_choose(cuda->engine, &list[i], err) < 0)
			return -1;
		/* Also chooses the plain product that replaces an epilogue which the library lacks. */
		plain.epilogue = GEMM_PLAIN;
		if (!gemm_is_there(cuda->engine, &list[i], err)
			&& gemm_choose(cuda->engine, &plain, err) < 0)
			return -1;
	}
	return 0;
}

static int tune(struct ops *ops, double seconds, struct err *err)
{
	struct ops_cuda *cuda = ops_cuda_of(ops);
	struct gemm list[64];
	size_t count = gemm_plans_of(&cuda->shapes, cuda->mode, list, sizeof list / sizeof list[0]);
	struct tune_result result;
	char text[400];
	int cache = 0;
	if (CUDA_CHECK(cudaDeviceGetAttribute(&cache, cudaDevAttrL2CacheSize,
					   cuda_of(ops->device)->number),
			err)
		< 0)
		return -1;
	const struct tune tune = { .engine = cuda->engine,
		.stream = cuda->stream,
		.scratch = cuda->scratch,
		.cache = (size_t)cache,
		.seconds = seconds,
		.now = clock_now };
	if (tune_gemms(&tune, list, count, &result, err) < 0)
		return -1;
	if (result.timed + result.untimed > 0)
		log_info("%s", tune_text(&result, text, sizeof text));
	return choose(ops, err);
}

static int adopt(struct ops *ops, const char *text, struct err *err)
{
	struct gemm_plans plans;
	int rc = gemm_plans_decode(text, &plans, err);
	if (rc == 0)
		rc = gemm_adopt(ops_cuda_of(ops)->engine, &plans, err);
	gemm_plans_clear(&plans);
	return rc;
}

static char *algorithms(struct ops *ops)
{
	return gemm_plans_encode(gemm_choices(ops_cuda_of(ops)->engine));
}

/* ---- life ---- */

static void destroy(struct ops *ops)
{
	struct ops_cuda *cuda = ops_cuda_of(ops);
	if (cuda->stream)
		cudaStreamSynchronize(cuda->stream);
	gemm_engine_destroy(cuda->engine);
	attention_cudnn_destroy(cuda->cudnn);
	void *const device[] = { cuda->cudnn_workspace, cuda->params_device, cuda->workspace,
		cuda->scratch, cuda->logits };
	for (size_t i = 0; i < sizeof device / sizeof device[0]; i++)
		cudaFree(device[i]);
	cudaFreeHost(cuda->params_ring);
	device_cuda_destroy(ops->device);
	free(cuda);
	free(ops);
}

/* Makes all that does not depend on shapes. */
static int begin(struct ops *ops, const struct gpu *gpu, const struct cublas *lib, struct err *err)
{
	struct ops_cuda *cuda = ops_cuda_of(ops);
	void *ring = NULL;
	ops->device = device_cuda_create(gpu, err);
	if (!ops->device)
		return -1;
	cuda->stream = cuda_of(ops->device)->stream;
	if (CUDA_CHECK(cudaHostAlloc(&ring, CUDA_PARAMS * sizeof *cuda->params_ring,
					   cudaHostAllocDefault),
			err)
		< 0)
		return -1;
	cuda->params_ring = ring;
	cuda->params_device =
		cuda_check_alloc(sizeof *cuda->params_device, "the numbers of a step", err);
	cuda->workspace = cuda->params_device
		? cuda_check_alloc(GEMM_PLANS_WORKSPACE, "the workspace of the matrix products", err)
		: NULL;
	if (!cuda->workspace)
		return -1;
	cuda->engine = gemm_engine_create(lib, cuda->mode, ops->device->card, cuda->workspace, err);
	return cuda->engine ? 0 : -1;
}

static const struct ops table = { .prepare = prepare,
	.destroy = destroy,
	.put_params = put_params,
	.choose = choose,
	.tune = tune,
	.adopt = adopt,
	.algorithms = algorithms };

static void describe(struct ops *ops, const struct cublas *lib)
{
	static const char *const names[] = { "cuda-fp32", "cuda-tf32", "cuda-bf16" };
	struct ops_cuda *cuda = ops_cuda_of(ops);
	size_t version = lib->version();
	snprintf(cuda->libraries, sizeof cuda->libraries, "CUDA %d.%d, cuBLASLt %zu.%zu.%zu",
		CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10, version / 10000, version / 100 % 100,
		version % 100);
	ops->name = names[cuda->mode];
	ops->libraries = cuda->libraries;
	ops->element = cuda_type_bytes(cuda->type);
	ops->cast = cuda->type == CUDA_BF16 ? cast : NULL;
	ops->params = &cuda->params;
}

struct ops *ops_cuda_create_over(const void *cublas, const struct gpu *gpu, enum gemm_mode mode,
	struct err *err)
{
	struct ops *ops = calloc(1, sizeof *ops);
	struct ops_cuda *cuda = calloc(1, sizeof *cuda);
	if (!ops || !cuda) {
		free(ops);
		free(cuda);
		err_set(err, "ops: couldn't create: out of memory");
		return NULL;
	}
	*ops = table;
	ops->state = cuda;
	cuda->mode = mode;
	cuda->type = mode == GEMM_MODE_BF16 ? CUDA_BF16 : CUDA_FP32;
	describe(ops, cublas);
	if (begin(ops, gpu, cublas, err) < 0) {
		destroy(ops);
		return NULL;
	}
	ops_cuda_linear_install(ops);
	ops_cuda_passes_install(ops);
	return ops;
}

struct ops *ops_cuda_create(const struct gpu *gpu, enum gemm_mode mode, struct err *err)
{
	const struct cublas *lib = cublas_load(err);
	return lib ? ops_cuda_create_over(lib, gpu, mode, err) : NULL;
}

int ops_cuda_take_attention(struct ops *ops, struct attention_cudnn *attention, struct err *err)
{
	struct ops_cuda *cuda = ops_cuda_of(ops);
	size_t length = cuda->own_libraries = strlen(cuda->libraries);
	cuda->cudnn = attention;
	snprintf(cuda->libraries + length, sizeof cuda->libraries - length, ", %s",
		attention_cudnn_text(attention));
	cuda->cudnn_workspace = cuda_check_alloc(attention_cudnn_workspace(attention),
		"the workspace of cuDNN's attention", err);
	return cuda->cudnn_workspace ? 0 : -1;
}
