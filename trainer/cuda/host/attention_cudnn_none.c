/* SPDX-License-Identifier: Apache-2.0 */
/* Takes the place of attention_cudnn.cc where cuDNN's headers are missing. */
#include "trainer/cuda/host/attention_cudnn.h"

static int refuse(struct err *err)
{
	return err_fail(err, EXIT_USAGE,
		"cudnn: this build has no cuDNN: configure it --with-cudnn-frontend=DIR, or leave "
		"--attention cudnn out");
}

struct attention_cudnn *attention_cudnn_create(int B, int T, int C, int H, struct err *err)
{
	refuse(err);
	return NULL;
}

void attention_cudnn_destroy(struct attention_cudnn *attention) {}

size_t attention_cudnn_workspace(const struct attention_cudnn *attention)
{
	return 0;
}

const char *attention_cudnn_text(const struct attention_cudnn *attention)
{
	return "";
}

bool attention_cudnn_is_for(const struct attention_cudnn *attention, int B, int T, int C, int H)
{
	return false;
}

int attention_cudnn_forward(struct attention_cudnn *attention, void *y, float *lse, const void *qkv,
	int B, int T, int C, int H, void *workspace, void *stream, struct err *err)
{
	return refuse(err);
}

int attention_cudnn_backward(struct attention_cudnn *attention, void *dqkv, const void *dy,
	const void *qkv, const void *y, const float *lse, int B, int T, int C, int H, void *workspace,
	void *stream, struct err *err)
{
	return refuse(err);
}
