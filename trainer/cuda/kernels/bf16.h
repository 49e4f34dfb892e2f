/* SPDX-License-Identifier: Apache-2.0 */
/* bf16 is the upper half of a float. The cast to it rounds to nearest, halves to even; a NaN
 * becomes 0x7fff, as with PTX's cvt.rn.bf16. The bits are the same on the GPU and on the host. For
 * .cu files only.
 *
 * Kernels are written once for elements of type T, float or bf16, with float_of(x), of_float<T>(x),
 * load8() and store8(). */
#ifndef MUSTER_CUDA_BF16_H
#define MUSTER_CUDA_BF16_H

#include "trainer/cuda/kernels/launch.h"

struct bf16 {
	uint16_t bits;
};

__device__ __forceinline__ float float_of(bf16 x)
{
	return __uint_as_float((uint32_t)x.bits << 16);
}
__device__ __forceinline__ float float_of(float x)
{
	return x;
}

/* Two elements in a word, the first in its lower half, as matrix instructions take them. */
__device__ __forceinline__ float low_of(uint32_t pair)
{
	return __uint_as_float(pair << 16);
}
__device__ __forceinline__ float high_of(uint32_t pair)
{
	return __uint_as_float(pair & 0xffff0000u);
}

#ifdef __CUDACC__

__device__ __forceinline__ bf16 bf16_of(float x)
{
	bf16 result;
	asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(x));
	return result;
}

__device__ __forceinline__ uint32_t pair_of(float low, float high)
{
	uint32_t result;
	asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
	return result;
}

#else

static inline bf16 bf16_of(float x)
{
	uint32_t bits = __float_as_uint(x), half = 0x7fff + (bits >> 16 & 1);
	if ((bits & 0x7fffffff) > 0x7f800000)
		return { 0x7fff };
	return { (uint16_t)((bits + half) >> 16) };
}

static inline uint32_t pair_of(float low, float high)
{
	return (uint32_t)bf16_of(high).bits << 16 | bf16_of(low).bits;
}

#endif

/* Casts to an element of type T. */
template <typename T> __device__ __forceinline__ T of_float(float x);
template <> __device__ __forceinline__ float of_float<float>(float x)
{
	return x;
}
template <> __device__ __forceinline__ bf16 of_float<bf16>(float x)
{
	return bf16_of(x);
}

/* Load eight neighbours at once; p is aligned to 16 bytes. */
__device__ __forceinline__ void load8(float out[8], const bf16 *p)
{
	const uint4 words = *reinterpret_cast<const uint4 *>(p);
	out[0] = low_of(words.x), out[1] = high_of(words.x), out[2] = low_of(words.y),
	out[3] = high_of(words.y);
	out[4] = low_of(words.z), out[5] = high_of(words.z), out[6] = low_of(words.w),
	out[7] = high_of(words.w);
}

__device__ __forceinline__ void load8(float out[8], const float *p)
{
	const float4 first = reinterpret_cast<const float4 *>(p)[0],
				 second = reinterpret_cast<const float4 *>(p)[1];
	out[0] = first.x, out[1] = first.y, out[2] = first.z, out[3] = first.w;
	out[4] = second.x, out[5] = second.y, out[6] = second.z, out[7] = second.w;
}

__device__ __forceinline__ void store8(bf16 *p, const float in[8])
{
	*reinterpret_cast<uint4 *>(p) = make_uint4(pair_of(in[0], in[1]), pair_of(in[2], in[3]),
		pair_of(in[4], in[5]), pair_of(in[6], in[7]));
}

__device__ __forceinline__ void store8(float *p, const float in[8])
{
	reinterpret_cast<float4 *>(p)[0] = make_float4(in[0], in[1], in[2], in[3]);
	reinterpret_cast<float4 *>(p)[1] = make_float4(in[4], in[5], in[6], in[7]);
}

#endif
