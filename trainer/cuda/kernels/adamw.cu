/* SPDX-License-Identifier: Apache-2.0 */
/* AdamW, bound by memory: moves 16 bytes in (gradient, weight, m, v) and 12 out for each element,
 * and 2 or 4 more for the copy that the passes read. Every operation is rounded as on the CPU, and
 * fused only where fmaf says so: the compiler fuses none (--fmad=false), and its division and
 * square root are correctly rounded. */
#include "trainer/cuda/kernels/adamw.h"

#include "trainer/cuda/kernels/launch.h"
#include "trainer/cuda/kernels/pack.h"

#define THREADS 256
#define OWN 4 /* neighbouring elements that a thread has */

/* Elements of all four arenas, updated in place. */
template <int N> struct elements {
	float grad[N], weights[N], m[N], v[N];
};

template <int N>
__device__ __forceinline__ void update(struct elements<N> &x, const struct step_params &p,
	float weight_decay)
{
	UNROLL
	for (int e = 0; e < N; e++) {
		const float g = x.grad[e] * p.clip, w = x.weights[e];
		const float m = fmaf(1.0f - p.beta1, g - x.m[e], x.m[e]);
		const float v = fmaf(1.0f - p.beta2, g * g - x.v[e], x.v[e]);
		const float direction = m * p.bias1 / (sqrtf(v * p.bias2) + p.epsilon);
		x.m[e] = m;
		x.v[e] = v;
		x.weights[e] = fmaf(-p.learning_rate, fmaf(weight_decay, w, direction), w);
	}
}

/* Elements [i, i + N) of the arenas, whose moments begin at j. */
template <typename T, int N>
__device__ __forceinline__ void update_at(const struct cuda_adamw &a, size_t i, size_t j,
	const struct step_params &p, float weight_decay)
{
	struct elements<N> x;
	load(x.grad, a.grad + i);
	load(x.weights, a.from.weights + i);
	load(x.m, a.from.m + j);
	load(x.v, a.from.v + j);
	update(x, p, weight_decay);
	store(a.to.weights + i, x.weights);
	store(a.to.m + j, x.m);
	store(a.to.v + j, x.v);
	if (a.compute != a.to.weights)
		store((T *)a.compute + i, x.weights);
}

/* One chunk a block. `wide`: the arenas are aligned to sixteen bytes; a chunk's first elements may
 * still not be. */
template <typename T>
__global__ void LAUNCH_BOUNDS(THREADS) adamw_chunks_kernel(const struct cuda_adamw a,
	const struct adamw_chunk *chunks, const struct step_params *params, bool wide)
{
	const struct adamw_chunk &chunk = chunks[blockIdx.x];
	const struct step_params &p = *params;
	const float weight_decay = chunk.decay ? p.weight_decay : 0;
	const size_t first = chunk.first, moments = chunk.moments;
	const uint32_t count = chunk.count;
	if (p.masked)
		return;
	if (!wide || first % OWN || moments % OWN) {
		for (uint32_t i = threadIdx.x; i < count; i += THREADS)
			update_at<T, 1>(a, first + i, moments + i, p, weight_decay);
		return;
	}
#pragma unroll 2
	for (uint32_t i = threadIdx.x * OWN; i + OWN <= count; i += THREADS * OWN)
		update_at<T, OWN>(a, first + i, moments + i, p, weight_decay);
	if (threadIdx.x < count % OWN) {
		const uint32_t i = count - count % OWN + threadIdx.x;
		update_at<T, 1>(a, first + i, moments + i, p, weight_decay);
	}
}

static bool adamw_is_wide(const struct cuda_adamw *a)
{
	return is_wide(a->to.weights, a->to.m, a->to.v, a->from.weights, a->from.m, a->from.v, a->grad,
		a->compute);
}

extern "C" int cuda_adamw_chunks(const struct cuda_adamw *arenas, const struct adamw_chunk *chunks,
	size_t count, const struct step_params *params, void *stream)
{
	auto kernel =
		arenas->type == CUDA_FP32 ? adamw_chunks_kernel<float> : adamw_chunks_kernel<bf16>;
	if (count == 0)
		return 0;
	return LAUNCH(kernel, (unsigned int)count, THREADS, 0, stream, *arenas, chunks, params,
		adamw_is_wide(arenas));
}
