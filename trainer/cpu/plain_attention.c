/* SPDX-License-Identifier: Apache-2.0 */
/* Causal self-attention in plain C: one row of scores at a time, computed again where it is needed
 * again. */
#include "config.h"

#include <math.h>

#include "trainer/cpu/cpu.h"

/* Where one head of one sample lies: element d of position t is at base + t·stride + d. */
struct head {
	size_t qkv; /* of q; k and v are C and 2C elements further */
	size_t y;
	size_t lse;
};

static struct head head_at(int b, int h, int T, int C, int H)
{
	size_t D = (size_t)(C / H), bT = (size_t)b * T;

	return (struct head) { bT * 3 * C + h * D, bT * C + h * D, ((size_t)b * H + h) * T };
}

static float dot(const float *a, const float *b, int n)
{
	float sum = 0;

	for (int i = 0; i < n; i++)
		sum += a[i] * b[i];
	return sum;
}

static void attend(float *y, float *lse, const float *qkv, int t, int C, int D)
{
	const float *q = qkv + (size_t)t * 3 * C, *k = qkv + C, *v = qkv + 2 * C;
	float scale = 1.0f / sqrtf((float)D), max = -INFINITY, sum = 0;

	for (int s = 0; s <= t; s++)
		max = fmaxf(max, scale * dot(q, k + (size_t)s * 3 * C, D));
	for (int s = 0; s <= t; s++)
		sum += expf(scale * dot(q, k + (size_t)s * 3 * C, D) - max);
	*lse = max + logf(sum);
	for (int d = 0; d < D; d++)
		y[d] = 0;
	for (int s = 0; s <= t; s++) {
		float p = expf(scale * dot(q, k + (size_t)s * 3 * C, D) - max) / sum;

		for (int d = 0; d < D; d++)
			y[d] += p * v[(size_t)s * 3 * C + d];
	}
}

static void attention(struct ops *ops, float *y, float *lse, const float *qkv, int B, int T, int C,
	int H)
{
#pragma omp parallel for
	for (int i = 0; i < B * H; i++) {
		struct head head = head_at(i / H, i % H, T, C, H);

		for (int t = 0; t < T; t++)
			attend(y + head.y + (size_t)t * C, lse + head.lse + t, qkv + head.qkv, t, C, C / H);
	}
}

/* Adds position t's part of the gradients of q at t, and of k and v at s <= t. */
static void attend_backward(float *dqkv, const float *dy, const float *qkv, const float *y,
	float lse, int t, int C, int D)
{
	const float *q = qkv + (size_t)t * 3 * C;
	float *dq = dqkv + (size_t)t * 3 * C;
	float scale = 1.0f / sqrtf((float)D), delta = dot(dy, y, D);

	for (int s = 0; s <= t; s++) {
		size_t at = (size_t)s * 3 * C;
		const float *k = qkv + at + C, *v = qkv + at + 2 * C;
		float *dk = dqkv + at + C, *dv = dqkv + at + 2 * C;
		float p = expf(scale * dot(q, k, D) - lse);
		float ds = p * (dot(dy, v, D) - delta) * scale;

		for (int d = 0; d < D; d++) {
			dq[d] += ds * k[d];
			dk[d] += ds * q[d];
			dv[d] += p * dy[d];
		}
	}
}

static void attention_backward(struct ops *ops, float *dqkv, const float *dy, const float *qkv,
	const float *y, const float *lse, int B, int T, int C, int H)
{
	for (size_t i = 0; i < (size_t)B * T * 3 * C; i++)
		dqkv[i] = 0;
#pragma omp parallel for
	for (int i = 0; i < B * H; i++) {
		struct head head = head_at(i / H, i % H, T, C, H);

		for (int t = 0; t < T; t++) {
			size_t at = head.y + (size_t)t * C;

			attend_backward(dqkv + head.qkv, dy + at, qkv + head.qkv, y + at, lse[head.lse + t], t,
				C, C / H);
		}
	}
}

void plain_attention_install(struct ops *ops)
{
	ops->attention = attention;
	ops->attention_backward = attention_backward;
}
