/* SPDX-License-Identifier: Apache-2.0 */
/* Causal self-attention over threads: each head of each sample is one thread's work. */
#include "config.h"

#include "trainer/cpu/cpu.h"
#include "trainer/cpu/kernels.h"

/* Head h of sample b in qkv[B,T,3C] and y[B,T,C]. */
static struct attention_head head_at(const float *qkv, int b, int h, int T, int C, int H)
{
	size_t at = (size_t)b * T * 3 * C + (size_t)h * (size_t)(C / H);

	return (struct attention_head) {
		.positions = T,
		.size = C / H,
		.row = 3 * (size_t)C,
		.y_row = (size_t)C,
		.q = qkv + at,
		.k = qkv + at + C,
		.v = qkv + at + 2 * (size_t)C,
	};
}

static void attention(struct ops *ops, float *y, float *lse, const float *qkv, int B, int T, int C,
	int H)
{
	const struct kernels *kernels = cpu_of(ops)->kernels;

#pragma omp parallel for schedule(dynamic)
	for (int i = 0; i < B * H; i++) {
		struct attention_head head = head_at(qkv, i / H, i % H, T, C, H);

		head.y = y + (size_t)(i / H) * T * C + (size_t)(i % H) * head.size;
		head.lse = lse + (size_t)i * T;
		kernels->attention(&head);
	}
}

static void attention_backward(struct ops *ops, float *dqkv, const float *dy, const float *qkv,
	const float *y, const float *lse, int B, int T, int C, int H)
{
	const struct kernels *kernels = cpu_of(ops)->kernels;

#pragma omp parallel for schedule(dynamic)
	for (int i = 0; i < B * H; i++) {
		struct attention_head head = head_at(qkv, i / H, i % H, T, C, H);
		size_t at_y = (size_t)(i / H) * T * C + (size_t)(i % H) * head.size;
		float *dq = dqkv + (head.q - qkv);

		head.y = (float *)y + at_y; /* only read here */
		head.lse = (float *)lse + (size_t)i * T;
		head.dy = dy + at_y;
		head.dq = dq;
		head.dk = dq + C;
		head.dv = dq + 2 * (size_t)C;
		kernels->attention_backward(&head);
	}
}

void fast_attention_install(struct ops *ops)
{
	ops->attention = attention;
	ops->attention_backward = attention_backward;
}
