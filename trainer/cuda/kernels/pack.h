/* SPDX-License-Identifier: Apache-2.0 */
/* How kernels move the elements of a tensor: N neighbours sixteen bytes at a time, the widest
 * access there is, or one by one where the shape or an address does not allow that. Kernels compute
 * in fp32. For .cu files only. */
#ifndef MUSTER_CUDA_PACK_H
#define MUSTER_CUDA_PACK_H

#include <stddef.h>
#include <stdint.h>

#include "trainer/cuda/kernels/bf16.h"
#include "trainer/cuda/kernels/launch.h"

/* Number of elements in sixteen bytes. */
template <typename T> constexpr int pack_of = 16 / (int)sizeof(T);

/* A value rounded as if it were stored as a T. */
template <typename T> __device__ __forceinline__ float rounded(float value)
{
	return float_of(of_float<T>(value));
}

/* Sixteen bytes of elements as loaded; in bf16 this takes half the registers of their values. */
template <typename T> struct raw_pack;
template <> struct raw_pack<float> {
	float4 bits;
};
template <> struct raw_pack<bf16> {
	uint4 bits;
};

template <typename T> __device__ __forceinline__ struct raw_pack<T> load_raw(const T *from) {
	return { *(const decltype(raw_pack<T>::bits) *)from };
}

__device__ __forceinline__ void
unpack(float *to, const struct raw_pack<float> &from)
{
	to[0] = from.bits.x, to[1] = from.bits.y, to[2] = from.bits.z, to[3] = from.bits.w;
}

__device__ __forceinline__ void unpack(float *to, const struct raw_pack<bf16> &from)
{
	const uint32_t words[4] = { from.bits.x, from.bits.y, from.bits.z, from.bits.w };
	UNROLL
	for (int i = 0; i < 4; i++) {
		to[2 * i] = low_of(words[i]);
		to[2 * i + 1] = high_of(words[i]);
	}
}

__device__ __forceinline__ void store_pack(float *to, const float *from)
{
	*(float4 *)to = make_float4(from[0], from[1], from[2], from[3]);
}

__device__ __forceinline__ void store_pack(bf16 *to, const float *from)
{
	store8(to, from);
}

/* to[N] = from[N]. Unless N is 1, from is aligned to sixteen bytes, and N is a multiple of the
 * elements in these. */
template <int N, typename T> __device__ __forceinline__ void load(float (&to)[N], const T *from)
{
	if constexpr (N == 1) {
		to[0] = float_of(*from);
	} else {
		UNROLL
		for (int i = 0; i < N; i += pack_of<T>)
			unpack(to + i, load_raw(from + i));
	}
}

/* The reverse; also four elements of eight bytes in all. */
template <int N, typename T> __device__ __forceinline__ void store(T *to, const float (&from)[N])
{
	if constexpr (N == 1) {
		*to = of_float<T>(from[0]);
	} else if constexpr (N * sizeof(T) == 8) {
		*(uint2 *)to = make_uint2(pair_of(from[0], from[1]), pair_of(from[2], from[3]));
	} else {
		UNROLL
		for (int i = 0; i < N; i += pack_of<T>)
			store_pack(to + i, from + i);
	}
}

/* The same at the end of a tensor, where `left` elements are left; load sets the others of `to` to
 * 0. */
template <int N, typename T>
__device__ __forceinline__ void load_upto(float (&to)[N], const T *from, size_t left)
{
	if (left >= N) {
		load(to, from);
		return;
	}
	UNROLL
	for (int i = 0; i < N; i++)
		to[i] = (size_t)i < left ? float_of(from[i]) : 0.0f;
}

template <int N, typename T>
__device__ __forceinline__ void store_upto(T *to, const float (&from)[N], size_t left)
{
	if (left >= N) {
		store(to, from);
		return;
	}
	UNROLL
	for (int i = 0; i < N; i++)
		if ((size_t)i < left)
			to[i] = of_float<T>(from[i]);
}

/* Whether all these addresses allow sixteen-byte accesses; NULL does. */
template <typename... P> static inline bool is_wide(P... at)
{
	return (((uintptr_t)at | ...) & 15) == 0;
}

/* Calls f<T, PACKS>(…) with the least number of packs a lane that holds a row of C elements, in
 * steps of 256; C is at most `widest`. */
#define BY_WIDTH(f, T, C, widest, ...) \
	((C) <= 256           ? f<T, 256 / LANES / pack_of<T>>(__VA_ARGS__) \
			: (C) <= 512  ? f<T, 512 / LANES / pack_of<T>>(__VA_ARGS__) \
			: (C) <= 768  ? f<T, 768 / LANES / pack_of<T>>(__VA_ARGS__) \
			: (C) <= 1024 ? f<T, 1024 / LANES / pack_of<T>>(__VA_ARGS__) \
			: (C) <= 1280 ? f<T, 1280 / LANES / pack_of<T>>(__VA_ARGS__) \
			: (C) <= 1536 ? f<T, 1536 / LANES / pack_of<T>>(__VA_ARGS__) \
			: (C) <= 1792 ? f<T, 1792 / LANES / pack_of<T>>(__VA_ARGS__) \
						  : f<T, (widest) / LANES / pack_of<T>>(__VA_ARGS__))

#endif
