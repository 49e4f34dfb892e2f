/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a training computes with cuDNN's attention where nobody has said so: where it is there
 * for the shape, and comes to the same bits twice. */
#include "config.h"

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/bytes.h"
#include "trainer/cuda/host/attention_cudnn.h"
#include "trainer/cuda/host/check.h"
#include "trainer/cuda/host/ops_cuda.h"
#include "trainer/cuda/host/ops_cuda_private.h"

#define PATTERN ((size_t)1 << 19) /* values that the inputs repeat */
#define ALIGNMENT ((size_t)256)   /* bytes */

/* One allocation: the inputs qkv and dy, then what the passes write. */
struct trial {
	int B, T, C, H;
	char *memory;
	size_t dy, y, dqkv, lse, end; /* offsets in bytes; qkv is at 0 */
};

static size_t after(size_t offset, size_t bytes)
{
	return (offset + bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static struct trial lay_out(int B, int T, int C, int H)
{
	struct trial trial = { .B = B, .T = T, .C = C, .H = H };
	size_t rows = (size_t)B * (size_t)T, matrix = rows * (size_t)C * sizeof(uint16_t);
	trial.dy = after(0, 3 * matrix);
	trial.y = after(trial.dy, matrix);
	trial.dqkv = after(trial.y, matrix);
	trial.lse = after(trial.dqkv, 3 * matrix);
	trial.end = after(trial.lse, rows * (size_t)H * sizeof(float));
	return trial;
}

/* Values in [-1, 1). */
static int fill(const struct trial *trial, void *stream, struct err *err)
{
	uint16_t *values = malloc(PATTERN * sizeof *values);
	uint64_t state = 1;
	int rc = values ? 0 : err_set(err, "out of memory");
	for (size_t i = 0; rc == 0 && i < PATTERN; i++) {
		state = state * 6364136223846793005u + 1442695040888963407u;
		values[i] = bytes_float_to_bf16((float)(state >> 40) * 0x1p-23f - 1);
	}
	for (size_t at = 0, bytes; rc == 0 && at < trial->y; at += bytes) {
		bytes = trial->y - at < PATTERN * sizeof *values ? trial->y - at : PATTERN * sizeof *values;
		rc = CUDA_CHECK(cudaMemcpyAsync(trial->memory + at, values, bytes, cudaMemcpyHostToDevice,
							(cudaStream_t)stream),
			err);
	}
	if (rc == 0)
		rc = CUDA_CHECK(cudaStreamSynchronize((cudaStream_t)stream), err);
	free(values);
	return rc;
}

/* Both passes, over memory that holds no number; `results` gets all that they have written. */
static int run_once(const struct ops_cuda *cuda, const struct trial *t, char *results,
	struct err *err)
{
	char *const m = t->memory;
	const cudaStream_t stream = (cudaStream_t)cuda->stream;
	if (CUDA_CHECK(cudaMemsetAsync(m + t->y, 0xff, t->end - t->y, stream), err) < 0
		|| attention_cudnn_forward(cuda->cudnn, m + t->y, (float *)(m + t->lse), m, t->B, t->T,
			   t->C, t->H, cuda->cudnn_workspace, cuda->stream, err)
			< 0
		|| attention_cudnn_backward(cuda->cudnn, m + t->dqkv, m + t->dy, m, m + t->y,
			   (const float *)(m + t->lse), t->B, t->T, t->C, t->H, cuda->cudnn_workspace,
			   cuda->stream, err)
			< 0)
		return -1;
	return CUDA_CHECK(cudaMemcpyAsync(results, m + t->y, t->end - t->y, cudaMemcpyDeviceToHost,
						  stream),
			   err)
			< 0
		? -1
		: CUDA_CHECK(cudaStreamSynchronize(stream), err);
}

static int compare(const struct ops_cuda *cuda, const struct trial *trial, struct err *err)
{
	size_t bytes = trial->end - trial->y;
	char *first = malloc(bytes), *second = malloc(bytes);
	int rc = first && second ? 0 : err_set(err, "out of memory");
	if (rc == 0 && (rc = run_once(cuda, trial, first, err)) == 0
		&& (rc = run_once(cuda, trial, second, err)) == 0 && memcmp(first, second, bytes) != 0)
		rc = err_set(err, "cuDNN's attention comes to other bits each time");
	free(first);
	free(second);
	return rc;
}

static int try_out(const struct ops_cuda *cuda, int B, int T, int C, int H, struct err *err)
{
	struct trial trial = lay_out(B, T, C, H);
	trial.memory = cuda_check_alloc(trial.end, "a trial of cuDNN's attention", err);
	int rc = trial.memory ? fill(&trial, cuda->stream, err) : -1;
	if (rc == 0)
		rc = compare(cuda, &trial, err);
	cudaFree(trial.memory);
	return rc;
}

bool ops_cuda_try_attention(struct ops *ops, int B, int T, int C, int H, struct err *why)
{
	struct ops_cuda *cuda = ops_cuda_of(ops);
	struct attention_cudnn *attention =
		cuda->type == CUDA_BF16 ? attention_cudnn_create(B, T, C, H, why) : NULL;
	if (!attention)
		return false;
	if (ops_cuda_take_attention(ops, attention, why) == 0 && try_out(cuda, B, T, C, H, why) == 0)
		return true;
	ops_cuda_drop_attention(ops);
	return false;
}

void ops_cuda_drop_attention(struct ops *ops)
{
	struct ops_cuda *cuda = ops_cuda_of(ops);
	attention_cudnn_destroy(cuda->cudnn);
	cudaFree(cuda->cudnn_workspace);
	cuda->cudnn = NULL;
	cuda->cudnn_workspace = NULL;
	cuda->libraries[cuda->own_libraries] = '\0';
}
