/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA's names for kernels that are compiled for the host: what a kernel of trainer/cuda/ may use,
 * by CUDA's C++ programming guide. What is not here isn't used; floats have no atomics, since
 * results must not depend on an order. */
#ifndef MUSTER_SHIM_CUDA_SHIM_H
#define MUSTER_SHIM_CUDA_SHIM_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <tuple>

#include "tests/shim/block.h"
#include "tests/shim/cuda_math.h"
#include "tests/shim/cuda_vectors.h"
#include "tests/shim/grid.h"
#include "tests/shim/shared.h"
#include "tests/shim/warp.h"

#define __global__ static
#define __device__
#define __host__
#define __constant__ static
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __grid_constant__
#define __launch_bounds__(...)

#define warpSize 32

struct dim3 : shim_triple {
	dim3(unsigned int width = 1, unsigned int height = 1, unsigned int depth = 1)
		: shim_triple { width, height, depth }
	{
	}
};

/* --- barriers and votes --- */

/* clang-format off: a line each */
static inline void __syncthreads()
{
	block_wait(BARRIER_SYNC, 0);
}
static inline int __syncthreads_or(int predicate)
{
	return block_wait(BARRIER_OR, predicate);
}
static inline int __syncthreads_and(int predicate)
{
	return block_wait(BARRIER_AND, predicate);
}
static inline int __syncthreads_count(int predicate)
{
	return block_wait(BARRIER_COUNT, predicate);
}
static inline void __syncwarp(unsigned int mask = 0xffffffff)
{
	warp_sync(mask);
}

static inline unsigned int __ballot_sync(unsigned int mask, int predicate)
{
	return warp_ballot(WARP_BALLOT, mask, predicate);
}
static inline int __any_sync(unsigned int mask, int predicate)
{
	return warp_ballot(WARP_ANY, mask, predicate) != 0;
}
static inline int __all_sync(unsigned int mask, int predicate)
{
	return warp_ballot(WARP_ALL, mask, predicate) == mask;
}
/* Which lanes run together is the GPU's choice: the least that it may say. */
static inline unsigned int __activemask()
{
	return 1u << warp_lane();
}
/* clang-format on */

/* The order of one thread's writes, as others see them: here each is seen at once. */
static inline void __threadfence() {}
static inline void __threadfence_block() {}

/* --- shuffles --- */

template <typename T>
static inline T shim_shuffle(warp_call call, unsigned int mask, T value, int operand, int width)
{
	static_assert(sizeof(T) == 4 || sizeof(T) == 8, "a shuffle takes 4 or 8 bytes");
	uint64_t bits = 0;
	memcpy(&bits, &value, sizeof value);
	bits = warp_shuffle(call, mask, bits, operand, width);
	memcpy(&value, &bits, sizeof value);
	return value;
}

template <typename T>
static inline T __shfl_sync(unsigned int mask, T value, int lane, int width = warpSize)
{
	return shim_shuffle(WARP_SHUFFLE, mask, value, lane, width);
}

template <typename T>
static inline T __shfl_up_sync(unsigned int mask, T value, unsigned int delta, int width = warpSize)
{
	return shim_shuffle(WARP_SHUFFLE_UP, mask, value, (int)delta, width);
}

template <typename T>
static inline T __shfl_down_sync(unsigned int mask, T value, unsigned int delta,
	int width = warpSize)
{
	return shim_shuffle(WARP_SHUFFLE_DOWN, mask, value, (int)delta, width);
}

template <typename T>
static inline T __shfl_xor_sync(unsigned int mask, T value, int lanes, int width = warpSize)
{
	return shim_shuffle(WARP_SHUFFLE_XOR, mask, value, lanes, width);
}

/* --- atomics: of integers; each returns what was there. They order memory, as a fence beside them
 * would on the GPU. --- */

template <typename T> struct shim_integer {
	static_assert((T)0.5 == (T)0 && sizeof(T) >= 4,
		"atomics are of integers of 4 or 8 bytes: no sum may depend on its order");
	typedef T type;
};

template <typename T> static inline T atomicAdd(T *at, typename shim_integer<T>::type value)
{
	return __atomic_fetch_add(at, value, __ATOMIC_ACQ_REL);
}

template <typename T> static inline T atomicOr(T *at, typename shim_integer<T>::type value)
{
	return __atomic_fetch_or(at, value, __ATOMIC_ACQ_REL);
}

template <typename T> static inline T atomicAnd(T *at, typename shim_integer<T>::type value)
{
	return __atomic_fetch_and(at, value, __ATOMIC_ACQ_REL);
}

template <typename T> static inline T atomicExch(T *at, typename shim_integer<T>::type value)
{
	return __atomic_exchange_n(at, value, __ATOMIC_ACQ_REL);
}

template <typename T>
static inline T atomicCAS(T *at, typename shim_integer<T>::type expected,
	typename shim_integer<T>::type value)
{
	__atomic_compare_exchange_n(at, &expected, value, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
	return expected;
}

template <typename T> static inline T atomicMax(T *at, typename shim_integer<T>::type value)
{
	T old = __atomic_load_n(at, __ATOMIC_ACQUIRE);
	while (old < value
		&& !__atomic_compare_exchange_n(at, &old, value, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		;
	return old;
}

template <typename T> static inline T atomicMin(T *at, typename shim_integer<T>::type value)
{
	T old = __atomic_load_n(at, __ATOMIC_ACQUIRE);
	while (old > value
		&& !__atomic_compare_exchange_n(at, &old, value, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		;
	return old;
}

/* --- shared memory and launches: trainer/cuda/kernels/launch.h has their meaning --- */

#define SHARED(type, name, count) \
	static shared_site name##_site; \
	type(&name)[count] = *(type(*)[count])shared_static(&name##_site, sizeof(type) * (count))
#define SHARED_DYNAMIC(type, name) type *name = (type *)shared_dynamic()

template <typename... P> struct shim_call {
	void (*kernel)(P...);
	std::tuple<P...> arguments;

	static void run(void *call)
	{
		std::apply(((shim_call *)call)->kernel, ((shim_call *)call)->arguments);
	}
	static void end(void *call) { delete (shim_call *)call; }
};

template <typename... P, typename... A>
static int launch_kernel(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared_bytes,
	void *stream, A... arguments)
{
	static_assert(sizeof...(P) == sizeof...(A), "a kernel is launched with all its arguments");
	shim_call<P...> call = { kernel, std::tuple<P...>(arguments...) };
	if (!grid_is_queued())
		return grid_launch(grid, block, shared_bytes, call.run, &call);
	grid_call later = { grid, block, shared_bytes, call.run, new shim_call<P...>(call), call.end };
	return grid_put_off(stream, &later);
}

#endif
