/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fakes/fake_attention.h"

#include <stdlib.h>

#include "trainer/cuda/host/attention_cudnn.h"
#include "trainer/cuda/host/check.h"
#include "trainer/cuda/kernels/attention.h"

struct fake_attention fake_attention;

struct attention_cudnn {
	int B, T, C, H;
};

struct attention_cudnn *attention_cudnn_create(int B, int T, int C, int H, struct err *err)
{
	if (fake_attention.absent) {
		err_fail(err, EXIT_USAGE, "cudnn: couldn't load cuDNN: libcudnn.so.9: no such file");
		return NULL;
	}
	struct attention_cudnn *attention = malloc(sizeof *attention);
	*attention = (struct attention_cudnn) { B, T, C, H };
	fake_attention.alive++;
	return attention;
}

void attention_cudnn_destroy(struct attention_cudnn *attention)
{
	fake_attention.alive -= attention != NULL;
	free(attention);
}

size_t attention_cudnn_workspace(const struct attention_cudnn *a)
{
	return cuda_attention_scratch(a->B, a->T, a->H);
}

const char *attention_cudnn_text(const struct attention_cudnn *attention)
{
	return "cuDNN 9.0.0, forward one, backward two";
}

bool attention_cudnn_is_for(const struct attention_cudnn *a, int B, int T, int C, int H)
{
	return a->B == B && a->T == T && a->C == C && a->H == H;
}

int attention_cudnn_forward(struct attention_cudnn *a, void *y, float *lse, const void *qkv, int B,
	int T, int C, int H, void *workspace, void *stream, struct err *err)
{
	if (fake_attention.fails)
		return err_set(err, "cudnn: couldn't run graph.execute(): a reason (1)");
	fake_attention.forward++;
	return CUDA_CHECK(cuda_attention(y, lse, qkv, B, T, C, H, CUDA_BF16, stream), err);
}

int attention_cudnn_backward(struct attention_cudnn *a, void *dqkv, const void *dy, const void *qkv,
	const void *y, const float *lse, int B, int T, int C, int H, void *workspace, void *stream,
	struct err *err)
{
	if (fake_attention.unsteady && fake_attention.backward % 2)
		dy = y;
	fake_attention.backward++;
	return CUDA_CHECK(cuda_attention_backward(dqkv, workspace, dy, qkv, y, lse, B, T, C, H,
						  CUDA_BF16, stream),
		err);
}
