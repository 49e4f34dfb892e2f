/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels for the tests of bf16.h and ptx.h. */
#include "tests/shim/ptx_samples.h"

#include "trainer/cuda/kernels/bf16.h"
#include "trainer/cuda/kernels/launch.h"
#include "trainer/cuda/kernels/ptx.h"

#define THREADS 128u

template <typename To, typename From>
__global__ void convert(To *out, const From *in, size_t count, bool by_eight)
{
	size_t i = ((size_t)blockIdx.x * THREADS + threadIdx.x) * 8;
	float x[8];
	if (i >= count)
		return;
	if (by_eight) {
		load8(x, in + i);
		store8(out + i, x);
		return;
	}
	for (int k = 0; k < 8; k++)
		out[i + k] = of_float<To>(float_of(in[i + k]));
}

static unsigned int blocks_for(size_t threads)
{
	return (unsigned int)((threads + THREADS - 1) / THREADS);
}

int sample_bf16(uint16_t *out, const float *in, size_t count, bool by_eight)
{
	return LAUNCH(convert<bf16, float>, blocks_for(count / 8), THREADS, 0, NULL, (bf16 *)out, in,
		count, by_eight);
}

int sample_float(float *out, const uint16_t *in, size_t count, bool by_eight)
{
	return LAUNCH(convert<float, bf16>, blocks_for(count / 8), THREADS, 0, NULL, out,
		(const bf16 *)in, count, by_eight);
}

__global__ void pairs_of(uint32_t *out, const float *in, size_t pairs)
{
	size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
	if (i < pairs)
		out[i] = pair_of(in[2 * i], in[2 * i + 1]);
}

int sample_pairs(uint32_t *out, const float *in, size_t pairs)
{
	return LAUNCH(pairs_of, blocks_for(pairs), THREADS, 0, NULL, out, in, pairs);
}

__device__ __forceinline__ uint32_t word_of(uint16_t low, uint16_t high)
{
	return (uint32_t)high << 16 | low;
}

__device__ __forceinline__ void store_d(float *out, const float d[4])
{
	unsigned int g = threadIdx.x / 4, t = threadIdx.x % 4;
	for (unsigned int i = 0; i < 4; i++)
		out[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = d[i];
}

__global__ void mma_alone(float *d, const uint16_t *a, const uint16_t *b)
{
	unsigned int g = threadIdx.x / 4, t = threadIdx.x % 4;
	uint32_t a_words[4], b_words[2];
	float sum[4];
	for (unsigned int i = 0; i < 4; i++) {
		const uint16_t *p = a + (g + i % 2 * 8) * 16 + i / 2 * 8 + 2 * t;
		a_words[i] = word_of(p[0], p[1]);
		sum[i] = d[(g + i / 2 * 8) * 8 + 2 * t + i % 2];
	}
	for (unsigned int i = 0; i < 2; i++) {
		const uint16_t *p = b + (i * 8 + 2 * t) * 8 + g;
		b_words[i] = word_of(p[0], p[8]);
	}
	mma_m16n8k16_bf16(sum, a_words, b_words);
	store_d(d, sum);
}

int sample_mma(float *d, const uint16_t *a, const uint16_t *b)
{
	return LAUNCH(mma_alone, 1, 32, 0, NULL, d, a, b);
}

/* A[16][16] and B[16][8] in shared memory by rows. */
__global__ void mma_by_ldmatrix(float *out, const uint16_t *a, const uint16_t *b, bool by_four)
{
	SHARED(uint4, a_rows, 32);
	SHARED(uint4, b_rows, 16);
	unsigned int lane = threadIdx.x;
	uint32_t a_words[4], b_words[4];
	float sum[4] = { 0, 0, 0, 0 };
	for (unsigned int i = lane; i < 256; i += 32)
		((uint16_t *)a_rows)[i] = a[i];
	for (unsigned int i = lane; i < 128; i += 32)
		((uint16_t *)b_rows)[i] = b[i];
	__syncwarp();
	ldmatrix_x4(a_words, a_rows + lane % 16 * 2 + lane / 16);
	if (by_four)
		ldmatrix_x4_trans(b_words, b_rows + lane % 16);
	else
		ldmatrix_x2_trans(b_words, b_rows + lane % 16);
	mma_m16n8k16_bf16(sum, a_words, b_words);
	store_d(out, sum);
}

int sample_mma_by_ldmatrix(float *out, const uint16_t *a, const uint16_t *b, bool by_four)
{
	return LAUNCH(mma_by_ldmatrix, 1, 32, 0, NULL, out, a, b, by_four);
}

__global__ void ldmatrix_alone(uint32_t *r, const uint16_t *m, int count, bool transposed)
{
	SHARED(uint4, rows, 32);
	unsigned int lane = threadIdx.x;
	uint32_t own[4] = { 0, 0, 0, 0 };
	for (unsigned int i = lane; i < 256; i += 32)
		((uint16_t *)rows)[i] = m[i];
	__syncwarp();
	if (count == 4 && transposed)
		ldmatrix_x4_trans(own, rows + lane);
	else if (count == 4)
		ldmatrix_x4(own, rows + lane);
	else if (transposed)
		ldmatrix_x2_trans(own, rows + lane);
	else
		ldmatrix_x2(own, rows + lane);
	for (int i = 0; i < 4; i++)
		r[4 * lane + i] = own[i];
}

int sample_ldmatrix(uint32_t *r, const uint16_t *m, int count, bool transposed)
{
	return LAUNCH(ldmatrix_alone, 1, 32, 0, NULL, r, m, count, transposed);
}

/* Each thread writes what its neighbour has copied. */
__global__ void copy(uint32_t *out, const uint32_t *in, size_t count, size_t valid, bool wait,
	bool barrier)
{
	SHARED_DYNAMIC(uint4, stages);
	const unsigned int threads = blockDim.x, i = threadIdx.x, other = (i + 1) % threads;
	size_t each = 4 * (size_t)threads, tiles = count / each;
	for (size_t tile = 0; tile <= tiles; tile++) {
		if (tile < tiles) {
			size_t first = tile * each + 4 * i;
			cp_async_16(stages + tile % 2 * threads + i, in + (first < valid ? first : 0),
				first < valid);
		}
		cp_async_commit();
		if (tile == 0)
			continue;
		if (wait)
			cp_async_wait<1>();
		if (barrier)
			__syncthreads();
		((uint4 *)out)[(tile - 1) * threads + other] = stages[(tile - 1) % 2 * threads + other];
		__syncthreads();
	}
}

int sample_copy(uint32_t *out, const uint32_t *in, size_t count, size_t valid, unsigned int threads,
	bool wait, bool barrier)
{
	return LAUNCH(copy, 1, threads, 2 * sizeof(uint4) * threads, NULL, out, in, count, valid, wait,
		barrier);
}

__global__ void ldmatrix_at(size_t byte)
{
	SHARED(uint4, rows, 32);
	uint32_t own[4];
	rows[threadIdx.x] = make_uint4(0, 0, 0, 0);
	__syncwarp();
	ldmatrix_x4(own, (const char *)rows + byte);
}

int sample_ldmatrix_at(size_t byte)
{
	return LAUNCH(ldmatrix_at, 1, 32, 0, NULL, byte);
}

__global__ void copy_at(const void *from, size_t byte)
{
	SHARED(uint4, to, 4);
	cp_async_16((char *)to + byte, from, true);
	cp_async_commit();
	cp_async_wait<0>();
}

int sample_copy_at(const void *from, size_t byte)
{
	return LAUNCH(copy_at, 1, 1, 0, NULL, from, byte);
}
