/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the GPU's table of operations: memory, copies, and the choice of GEMM plans. */
#include "trainer/cuda/host/ops_cuda.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/log.h"
#include "trainer/cuda/host/attention_cudnn.h"
#include "trainer/cuda/host/cuda.h"
#include "trainer/cuda/host/tune.h"
#include "trainer/cuda/kernels/attention.h"
#include "trainer/cuda/kernels/column_sums.h"
#include "trainer/cuda/kernels/elements.h"
#include "trainer/cuda/kernels/embedding.h"
#include "trainer/cuda/kernels/head.h"
#include "trainer/cuda/kernels/norm.h"

/* ---- the device ---- */

int ops_cuda_runtime(void)
{
	return CUDART_VERSION;
}

int ops_cuda_begin(const struct gpu *gpu, uint64_t *available, struct err *err)
{
	size_t unused = 0, all = 0;
	if (CUDA_CHECK(cudaSetDevice(gpu->index), err) < 0
		|| CUDA_CHECK(cudaMemGetInfo(&unused, &all), err) < 0)
		return -1;
	*available = unused;
	return 0;
}

bool cuda_note(struct ops *ops, int rc, const struct err *err)
{
	struct cuda *cuda = cuda_of(ops);
	if (rc < 0 && cuda->capturing && pthread_equal(cuda->capturer, pthread_self())) {
		cuda->spoilt = true;
		return false;
	}
	pthread_mutex_lock(&cuda->lock);
	if (rc < 0 && !cuda->failed) {
		cuda->failed = true;
		cuda->err = *err;
	}
	bool well = !cuda->failed;
	pthread_mutex_unlock(&cuda->lock);
	return well;
}

bool cuda_run(struct ops *ops, int code, const char *call, const char *file, int line)
{
	struct err err;
	return code == 0 || cuda_note(ops, cuda_check(code, call, file, line, &err), &err);
}

/* The runtime keeps a current device for each thread, and the communicator's thread calls ops,
 * too. */
bool cuda_begin(struct ops *ops)
{
	static __thread int current = -1;
	struct err err = { 0 };
	if (!cuda_note(ops, 0, &err))
		return false;
	if (current == cuda_of(ops)->device)
		return true;
	current = cuda_of(ops)->device;
	return CUDA_RUN(ops, cudaSetDevice(current));
}

static int check(struct ops *ops, struct err *err)
{
	struct cuda *cuda = cuda_of(ops);
	pthread_mutex_lock(&cuda->lock);
	bool failed = cuda->failed;
	if (failed)
		*err = cuda->err;
	pthread_mutex_unlock(&cuda->lock);
	return failed ? -1 : 0;
}

/* ---- memory ---- */

static void *alloc(struct ops *ops, size_t bytes)
{
	struct err err;
	if (!cuda_begin(ops))
		return NULL;
	void *memory = cuda_check_alloc(bytes, "the arenas of the training", &err);
	cuda_note(ops, memory ? 0 : -1, &err);
	return memory;
}

static void release(struct ops *ops, void *p)
{
	cudaFree(p);
}

static void copy(struct ops *ops, void *to, const void *from, size_t bytes,
	enum cudaMemcpyKind kind)
{
	struct cuda *cuda = cuda_of(ops);
	if (cuda_begin(ops) && CUDA_RUN(ops, cudaMemcpyAsync(to, from, bytes, kind, cuda->stream)))
		CUDA_RUN(ops, cudaStreamSynchronize(cuda->stream));
}

static void copy_in(struct ops *ops, void *device, const void *host, size_t bytes)
{
	copy(ops, device, host, bytes, cudaMemcpyHostToDevice);
}

static void copy_out(struct ops *ops, void *host, const void *device, size_t bytes)
{
	copy(ops, host, device, bytes, cudaMemcpyDeviceToHost);
}

/* Copies through pinned memory. Waiting for a place that is still in use costs nothing, since the
 * host is then that far ahead of the device. */
static bool put_part(struct ops *ops, char *device, const char *host, size_t bytes)
{
	struct cuda *cuda = cuda_of(ops);
	unsigned int at = cuda->put_next++ % CUDA_PUTS;
	char *place = cuda->puts + at * CUDA_PUT_BYTES;
	cudaEvent_t left = (cudaEvent_t)cuda->put_events[at];
	if (cudaEventQuery(left) == cudaErrorNotReady && !CUDA_RUN(ops, cudaEventSynchronize(left)))
		return false;
	memcpy(place, host, bytes);
	return CUDA_RUN(ops,
			   cudaMemcpyAsync(device, place, bytes, cudaMemcpyHostToDevice, cuda->stream))
		&& CUDA_RUN(ops, cudaEventRecord(left, cuda->stream));
}

static void put(struct ops *ops, void *device, const void *host, size_t bytes)
{
	bool well = cuda_begin(ops);
	for (size_t at = 0; well && at < bytes; at += CUDA_PUT_BYTES)
		well = put_part(ops, (char *)device + at, (const char *)host + at,
			bytes - at < CUDA_PUT_BYTES ? bytes - at : CUDA_PUT_BYTES);
}

/* Copies from pinned memory, so that the host does not wait. The ring has room for many steps, and
 * the host waits for the device in each step, so no place is overwritten too early. */
static void put_params(struct ops *ops)
{
	struct cuda *cuda = cuda_of(ops);
	struct step_params *place = &cuda->params_ring[cuda->params_next++ % CUDA_PARAMS];
	*place = cuda->params;
	if (cuda_begin(ops))
		CUDA_RUN(ops,
			cudaMemcpyAsync(cuda->params_device, place, sizeof *place, cudaMemcpyHostToDevice,
				cuda->stream));
}

static void cast(struct ops *ops, float *compute, const float *weights, size_t count)
{
	if (cuda_begin(ops))
		CUDA_RUN(ops, cuda_to_bf16(compute, weights, count, cuda_of(ops)->stream));
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
	struct cuda *cuda = cuda_of(ops);
	if (!cuda_begin(ops))
		return check(ops, err);
	cuda->shapes = *shapes;
	cuda->scratch_bytes = scratch_of(shapes);
	cuda->logits_bytes = logits_of(shapes, cuda->mode);
	cuda->scratch = again(cuda->scratch, cuda->scratch_bytes, "sums of the backward pass", err);
	if (!cuda->scratch)
		return -1;
	cuda->logits = again(cuda->logits, cuda->logits_bytes, "the logits", err);
	return cuda->logits ? 0 : -1;
}

/* ---- GEMM plans ---- */

/* Adopts an earlier attempt's plans, if they fit. */
static int use_recorded(struct cuda *cuda, const char *recorded, struct err *err)
{
	struct gemm_plans plans;
	int rc = gemm_plans_decode(recorded, &plans, err);
	if (rc == 0)
		rc = gemm_adopt(cuda->engine, &plans, err);
	gemm_plans_clear(&plans);
	return rc;
}

static int choose(struct ops *ops, struct err *err)
{
	struct cuda *cuda = cuda_of(ops);
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
	struct cuda *cuda = cuda_of(ops);
	struct gemm list[64];
	size_t count = gemm_plans_of(&cuda->shapes, cuda->mode, list, sizeof list / sizeof list[0]);
	struct tune_result result;
	char text[400];
	int cache = 0;
	if (CUDA_CHECK(cudaDeviceGetAttribute(&cache, cudaDevAttrL2CacheSize, cuda->device), err) < 0)
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
	return use_recorded(cuda_of(ops), text, err);
}

static char *algorithms(struct ops *ops)
{
	return gemm_plans_encode(gemm_choices(cuda_of(ops)->engine));
}

/* ---- life ---- */

static void destroy(struct ops *ops)
{
	struct cuda *cuda = ops ? cuda_of(ops) : NULL;
	if (!ops)
		return;
	if (cuda->stream)
		cudaStreamSynchronize(cuda->stream);
	cuda_copy_stream_destroy(cuda->copy_stream);
	gemm_engine_destroy(cuda->engine);
	attention_cudnn_destroy(cuda->cudnn);
	void *const device[] = { cuda->cudnn_workspace, cuda->params_device, cuda->workspace,
		cuda->scratch, cuda->logits };
	for (size_t i = 0; i < sizeof device / sizeof device[0]; i++)
		cudaFree(device[i]);
	cudaFreeHost(cuda->params_ring);
	cudaFreeHost(cuda->puts);
	for (int i = 0; i < CUDA_PUTS; i++)
		if (cuda->put_events[i])
			cudaEventDestroy((cudaEvent_t)cuda->put_events[i]);
	cuda_stream_end(&cuda->communication);
	cuda_graph_end(cuda);
	for (int i = 0; i < CUDA_EVENTS; i++)
		if (cuda->events[i])
			cudaEventDestroy(cuda->events[i]);
	cuda_stream_end(&cuda->training);
	pthread_mutex_destroy(&cuda->lock);
	free(cuda);
	free(ops);
}

static int begin_puts(struct cuda *cuda, struct err *err)
{
	void *puts = NULL;
	if (CUDA_CHECK(cudaHostAlloc(&puts, CUDA_PUTS * CUDA_PUT_BYTES, cudaHostAllocDefault), err) < 0)
		return -1;
	cuda->puts = puts;
	for (int i = 0; i < CUDA_PUTS; i++) {
		cudaEvent_t event = NULL;
		if (CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), err) < 0)
			return -1;
		cuda->put_events[i] = event;
	}
	return 0;
}

/* Makes all that does not depend on shapes. */
static int begin(struct cuda *cuda, const struct cublas *lib, const char *card, struct err *err)
{
	void *ring = NULL;
	int rc = cuda_stream_make(&cuda->training, false, err);
	cuda->stream = cuda->training.stream;
	if (rc < 0)
		return -1;
	if (CUDA_CHECK(cudaHostAlloc(&ring, CUDA_PARAMS * sizeof *cuda->params_ring,
					   cudaHostAllocDefault),
			err)
		< 0)
		return -1;
	cuda->params_ring = ring;
	if (begin_puts(cuda, err) < 0)
		return -1;
	cuda->params_device =
		cuda_check_alloc(sizeof *cuda->params_device, "the numbers of a step", err);
	cuda->workspace = cuda->params_device
		? cuda_check_alloc(GEMM_PLANS_WORKSPACE, "the workspace of the matrix products", err)
		: NULL;
	if (!cuda->workspace)
		return -1;
	cuda->copy_stream = cuda_copy_stream_create(err);
	if (!cuda->copy_stream)
		return -1;
	cuda->engine = gemm_engine_create(lib, cuda->mode, card, cuda->workspace, err);
	return cuda->engine ? 0 : -1;
}

static const struct ops table = { .prepare = prepare,
	.destroy = destroy,
	.alloc = alloc,
	.release = release,
	.copy_in = copy_in,
	.copy_out = copy_out,
	.copy_stream = &cuda_copy_stream_ops,
	.put = put,
	.put_params = put_params,
	.check = check,
	.choose = choose,
	.tune = tune,
	.adopt = adopt,
	.algorithms = algorithms };

static void describe(struct ops *ops, const struct gpu *gpu, const struct cublas *lib)
{
	static const char *const names[] = { "cuda-fp32", "cuda-tf32", "cuda-bf16" };
	struct cuda *cuda = cuda_of(ops);
	size_t version = lib->version();
	snprintf(cuda->card, sizeof cuda->card, "%s, %d multiprocessors", gpu->name, gpu->processors);
	snprintf(cuda->libraries, sizeof cuda->libraries, "CUDA %d.%d, cuBLASLt %zu.%zu.%zu",
		CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10, version / 10000, version / 100 % 100,
		version % 100);
	ops->name = names[cuda->mode];
	ops->card = cuda->card;
	ops->libraries = cuda->libraries;
	ops->element = cuda_type_bytes(cuda->type);
	ops->cast = cuda->type == CUDA_BF16 ? cast : NULL;
	ops->params = &cuda->params;
}

struct ops *ops_cuda_create_over(const void *cublas, const struct gpu *gpu, enum gemm_mode mode,
	struct err *err)
{
	struct ops *ops = calloc(1, sizeof *ops);
	struct cuda *cuda = calloc(1, sizeof *cuda);
	if (!ops || !cuda) {
		free(ops);
		free(cuda);
		err_set(err, "ops: couldn't create: out of memory");
		return NULL;
	}
	*ops = table;
	ops->state = cuda;
	pthread_mutex_init(&cuda->lock, NULL);
	cuda->mode = mode;
	cuda->type = mode == GEMM_MODE_BF16 ? CUDA_BF16 : CUDA_FP32;
	cuda->device = gpu->index;
	describe(ops, gpu, cublas);
	if (begin(cuda, cublas, cuda->card, err) < 0) {
		destroy(ops);
		return NULL;
	}
	cuda_stream_install(ops);
	cuda_graph_install(ops);
	cuda_linear_install(ops);
	cuda_passes_install(ops);
	return ops;
}

struct ops *ops_cuda_create(const struct gpu *gpu, enum gemm_mode mode, struct err *err)
{
	const struct cublas *lib = cublas_load(err);
	return lib ? ops_cuda_create_over(lib, gpu, mode, err) : NULL;
}

int ops_cuda_take_attention(struct ops *ops, struct attention_cudnn *attention, struct err *err)
{
	struct cuda *cuda = cuda_of(ops);
	size_t length = strlen(cuda->libraries);
	cuda->cudnn = attention;
	snprintf(cuda->libraries + length, sizeof cuda->libraries - length, ", %s",
		attention_cudnn_text(attention));
	cuda->cudnn_workspace = cuda_check_alloc(attention_cudnn_workspace(attention),
		"the workspace of cuDNN's attention", err);
	return cuda->cudnn_workspace ? 0 : -1;
}
