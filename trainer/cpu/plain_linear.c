/* SPDX-License-Identifier: Apache-2.0 */
/* Linear layers in plain C: each sum runs in ascending order of its index. */
#include "config.h"

#include <math.h>
#include <string.h>

#include "trainer/cpu/cpu.h"

#define SQRT_2_PI 0.79788456080286535588f /* sqrt(2/pi) */
#define GELU_CUBE 0.044715f

static float gelu(float x)
{
	return 0.5f * x * (1.0f + tanhf(SQRT_2_PI * (x + GELU_CUBE * x * x * x)));
}

static float gelu_derivative(float x)
{
	float t = tanhf(SQRT_2_PI * (x + GELU_CUBE * x * x * x));

	return 0.5f * (1.0f + t)
		+ 0.5f * x * (1.0f - t * t) * SQRT_2_PI * (1.0f + 3.0f * GELU_CUBE * x * x);
}

static void linear(struct ops *ops, float *y, const float *x, const float *w, const float *bias,
	int M, int K, int N)
{
#pragma omp parallel for
	for (int m = 0; m < M; m++) {
		float *row = y + (size_t)m * N;

		for (int n = 0; n < N; n++)
			row[n] = 0;
		for (int k = 0; k < K; k++) {
			float a = x[(size_t)m * K + k];
			const float *b = w + (size_t)k * N;

			for (int n = 0; n < N; n++)
				row[n] += a * b[n];
		}
		for (int n = 0; bias && n < N; n++)
			row[n] += bias[n];
	}
}

static void linear_gelu(struct ops *ops, float *y, float *pre, const float *x, const float *w,
	const float *bias, int M, int K, int N)
{
	linear(ops, pre, x, w, bias, M, K, N);
#pragma omp parallel for
	for (size_t i = 0; i < (size_t)M * N; i++)
		y[i] = gelu(pre[i]);
}

static void linear_relu(struct ops *ops, float *y, const float *x, const float *w,
	const float *bias, int M, int K, int N)
{
	linear(ops, y, x, w, bias, M, K, N);
	for (size_t i = 0; i < (size_t)M * N; i++)
		y[i] = y[i] < 0 ? 0 : y[i]; /* written such that a NaN stays a NaN */
}

static void linear_backward_input(struct ops *ops, float *dx, const float *dy, const float *w,
	int M, int K, int N)
{
#pragma omp parallel for
	for (int m = 0; m < M; m++)
		for (int k = 0; k < K; k++) {
			const float *a = dy + (size_t)m * N, *b = w + (size_t)k * N;
			float sum = 0;

			for (int n = 0; n < N; n++)
				sum += a[n] * b[n];
			dx[(size_t)m * K + k] = sum;
		}
}

static void linear_backward_input_gelu(struct ops *ops, float *dx, const float *dy, const float *w,
	const float *pre, int M, int K, int N)
{
	linear_backward_input(ops, dx, dy, w, M, K, N);
#pragma omp parallel for
	for (size_t i = 0; i < (size_t)M * K; i++)
		dx[i] *= gelu_derivative(pre[i]);
}

static void linear_backward_input_relu(struct ops *ops, float *dx, const float *dy, const float *w,
	const float *y, int M, int K, int N)
{
	linear_backward_input(ops, dx, dy, w, M, K, N);
	for (size_t i = 0; i < (size_t)M * K; i++)
		dx[i] = y[i] > 0 ? dx[i] : 0;
}

static void linear_backward_weight(struct ops *ops, float *dw, float *dbias, const float *x,
	const float *dy, int M, int K, int N, int accumulate)
{
#pragma omp parallel for
	for (int k = 0; k < K; k++) {
		float *row = dw + (size_t)k * N;

		if (!accumulate)
			memset(row, 0, (size_t)N * sizeof(float));
		for (int m = 0; m < M; m++) {
			float a = x[(size_t)m * K + k];

			for (int n = 0; n < N; n++)
				row[n] += a * dy[(size_t)m * N + n];
		}
	}
	for (int n = 0; dbias && n < N; n++) {
		float sum = accumulate ? dbias[n] : 0;

		for (int m = 0; m < M; m++)
			sum += dy[(size_t)m * N + n];
		dbias[n] = sum;
	}
}

void plain_linear_install(struct ops *ops)
{
	ops->linear = linear;
	ops->linear_gelu = linear_gelu;
	ops->linear_relu = linear_relu;
	ops->linear_backward_input = linear_backward_input;
	ops->linear_backward_input_gelu = linear_backward_input_gelu;
	ops->linear_backward_input_relu = linear_backward_input_relu;
	ops->linear_backward_weight = linear_backward_weight;
}
