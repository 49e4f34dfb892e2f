/* SPDX-License-Identifier: Apache-2.0 */
/* Element-wise kernels, bound by memory. In elements or bytes: the activation moves M·N·(x, y, and
 * pre where it is wanted) elements, its derivatives count·3 elements, zero count·4 bytes, the cast
 * count·6 bytes. A thread has one pack of neighbours, which is enough threads on a multiprocessor
 * to keep the memory busy. */
#include "trainer/cuda/kernels/elements.h"

#include "trainer/cuda/kernels/launch.h"
#include "trainer/cuda/kernels/pack.h"

#define WARPS 8
#define THREADS (WARPS * LANES)
#define SQRT_2_PI 0.79788456080286535588f /* sqrt(2/pi) */
#define GELU_CUBE 0.044715f

/* 0.5·(1 + tanh(u)) equals 1 / (1 + exp(-2u)), which needs no tanh. bf16 may use the fast exp: its
 * error is far below bf16's. */
template <typename T> __device__ __forceinline__ float sigmoid_2u(float x)
{
	const float u = SQRT_2_PI * (x + GELU_CUBE * x * x * x);
	return 1.0f / (1.0f + (sizeof(T) == 4 ? expf(-2.0f * u) : __expf(-2.0f * u)));
}

template <typename T> __device__ __forceinline__ float gelu(float x)
{
	return x * sigmoid_2u<T>(x);
}

template <typename T> __device__ __forceinline__ float gelu_derivative(float x)
{
	const float s = sigmoid_2u<T>(x);
	return s + x * s * (1.0f - s) * 2.0f * SQRT_2_PI * (1.0f + 3.0f * GELU_CUBE * x * x);
}

/* Written such that a NaN stays a NaN. */
template <typename T>
__device__ __forceinline__ float activation_of(float x, enum cuda_activation activation)
{
	return activation == CUDA_GELU ? gelu<T>(x) : activation == CUDA_RELU && x < 0 ? 0 : x;
}

/* y, pre, x: [M,N]; bias: [N]; a warp a row, P columns a lane at a time */
template <typename T, int P>
__global__ void LAUNCH_BOUNDS(THREADS) activation_kernel(T *y, T *pre, const T *x, const T *bias,
	int M, int N, enum cuda_activation activation)
{
	const size_t m = (size_t)blockIdx.x * WARPS + threadIdx.x / LANES;
	if (m >= (size_t)M)
		return;
#pragma unroll 4
	for (int n = threadIdx.x % LANES * P; n < N; n += LANES * P) {
		float value[P], add[P] = {};
		load(value, x + m * N + n);
		if (bias)
			load(add, bias + n);
		UNROLL
		for (int e = 0; e < P; e++)
			value[e] = bias ? rounded<T>(value[e] + add[e]) : value[e];
		if (pre)
			store(pre + m * N + n, value);
		UNROLL
		for (int e = 0; e < P; e++)
			value[e] = activation_of<T>(value[e], activation);
		store(y + m * N + n, value);
	}
}

template <typename T, int P>
static int launch_activation(void *y, void *pre, const void *x, const void *bias, int M, int N,
	enum cuda_activation activation, void *stream)
{
	auto kernel = activation_kernel<T, P>;
	return LAUNCH(kernel, (unsigned int)((M + WARPS - 1) / WARPS), THREADS, 0, stream, (T *)y,
		(T *)pre, (const T *)x, (const T *)bias, M, N, activation);
}

template <typename T>
static int activate(void *y, void *pre, const void *x, const void *bias, int M, int N,
	enum cuda_activation activation, void *stream)
{
	return N % pack_of<T> == 0 && is_wide(y, pre, x, bias)
		? launch_activation<T, pack_of<T>>(y, pre, x, bias, M, N, activation, stream)
		: launch_activation<T, 1>(y, pre, x, bias, M, N, activation, stream);
}

extern "C" int cuda_activation(void *y, void *pre, const void *x, const void *bias, int M, int N,
	enum cuda_activation activation, enum cuda_type type, void *stream)
{
	if (M == 0)
		return 0;
	return type == CUDA_FP32 ? activate<float>(y, pre, x, bias, M, N, activation, stream)
							 : activate<bf16>(y, pre, x, bias, M, N, activation, stream);
}

/* What each kernel does with the P values of its two operands. */
struct gelu_gradient {
	template <typename T> static __device__ __forceinline__ float of(float dy, float pre)
	{
		return dy * gelu_derivative<T>(pre);
	}
};

struct relu_gradient {
	template <typename T> static __device__ __forceinline__ float of(float dy, float y)
	{
		return y > 0 ? dy : 0;
	}
};

/* dx, dy, saved: [count] */
template <typename G, typename T, int P>
__global__ void LAUNCH_BOUNDS(THREADS)
	gradient_kernel(T *dx, const T *dy, const T *saved, size_t count)
{
	const size_t i = ((size_t)blockIdx.x * THREADS + threadIdx.x) * P;
	float value[P], other[P];
	if (i >= count)
		return;
	load_upto(value, dy + i, count - i);
	load_upto(other, saved + i, count - i);
	UNROLL
	for (int e = 0; e < P; e++)
		value[e] = G::template of<T>(value[e], other[e]);
	store_upto(dx + i, value, count - i);
}

static unsigned int blocks_of(size_t count, size_t own)
{
	return (unsigned int)((count + THREADS * own - 1) / (THREADS * own));
}

template <typename G, typename T>
static int gradient(void *dx, const void *dy, const void *saved, size_t count, void *stream)
{
	constexpr int P = pack_of<T>;
	const bool wide = is_wide(dx, dy, saved);
	auto kernel = wide ? gradient_kernel<G, T, P> : gradient_kernel<G, T, 1>;
	if (count == 0)
		return 0;
	return LAUNCH(kernel, blocks_of(count, wide ? P : 1), THREADS, 0, stream, (T *)dx,
		(const T *)dy, (const T *)saved, count);
}

extern "C" int cuda_gelu_backward(void *dx, const void *dy, const void *pre, size_t count,
	enum cuda_type type, void *stream)
{
	return type == CUDA_FP32 ? gradient<gelu_gradient, float>(dx, dy, pre, count, stream)
							 : gradient<gelu_gradient, bf16>(dx, dy, pre, count, stream);
}

extern "C" int cuda_relu_backward(void *dx, const void *dy, const void *y, size_t count,
	enum cuda_type type, void *stream)
{
	return type == CUDA_FP32 ? gradient<relu_gradient, float>(dx, dy, y, count, stream)
							 : gradient<relu_gradient, bf16>(dx, dy, y, count, stream);
}

/* out, x: [count]; x may be NULL for zeros. P is the pack of the wider side, fp32. */
template <typename T, int P>
__global__ void LAUNCH_BOUNDS(THREADS) fill_kernel(T *out, const float *x, size_t count)
{
	const size_t i = ((size_t)blockIdx.x * THREADS + threadIdx.x) * P;
	float value[P] = {};
	if (i >= count)
		return;
	if (x)
		load_upto(value, x + i, count - i);
	store_upto(out + i, value, count - i);
}

extern "C" int cuda_zero(float *out, size_t count, void *stream)
{
	const bool wide = is_wide(out);
	auto kernel = wide ? fill_kernel<float, 4> : fill_kernel<float, 1>;
	if (count == 0)
		return 0;
	return LAUNCH(kernel, blocks_of(count, wide ? 4 : 1), THREADS, 0, stream, out,
		(const float *)NULL, count);
}

extern "C" int cuda_to_bf16(void *out, const float *x, size_t count, void *stream)
{
	const bool wide = is_wide(out, x);
	auto kernel = wide ? fill_kernel<bf16, 8> : fill_kernel<bf16, 1>;
	if (count == 0)
		return 0;
	return LAUNCH(kernel, blocks_of(count, wide ? 8 : 1), THREADS, 0, stream, (bf16 *)out, x,
		count);
}

/* out, x: [count] */
template <int P>
__global__ void LAUNCH_BOUNDS(THREADS) widen_kernel(float *out, const bf16 *x, size_t count)
{
	const size_t i = ((size_t)blockIdx.x * THREADS + threadIdx.x) * P;
	float value[P] = {};
	if (i >= count)
		return;
	load_upto(value, x + i, count - i);
	store_upto(out + i, value, count - i);
}

extern "C" int cuda_from_bf16(float *out, const void *x, size_t count, void *stream)
{
	const bool wide = is_wide(out, x);
	auto kernel = wide ? widen_kernel<8> : widen_kernel<1>;
	if (count == 0)
		return 0;
	return LAUNCH(kernel, blocks_of(count, wide ? 8 : 1), THREADS, 0, stream, out, (const bf16 *)x,
		count);
}
