/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA's small vectors, aligned as there, and the loads and stores that name a cache. */
#ifndef MUSTER_SHIM_CUDA_VECTORS_H
#define MUSTER_SHIM_CUDA_VECTORS_H

#include <stdint.h>

#define SHIM_VECTOR2(vector, element) \
	struct alignas(2 * sizeof(element)) vector { \
		element x, y; \
	}; \
	static inline vector make_##vector(element x, element y) \
	{ \
		return { x, y }; \
	}
#define SHIM_VECTOR4(vector, element) \
	struct alignas(16) vector { \
		element x, y, z, w; \
	}; \
	static inline vector make_##vector(element x, element y, element z, element w) \
	{ \
		return { x, y, z, w }; \
	}

SHIM_VECTOR2(float2, float)
SHIM_VECTOR4(float4, float)
SHIM_VECTOR2(double2, double)
SHIM_VECTOR2(int2, int)
SHIM_VECTOR4(int4, int)
SHIM_VECTOR2(uint2, unsigned int)
SHIM_VECTOR4(uint4, unsigned int)

template <typename T> static inline T __ldg(const T *p)
{
	return *p;
}
template <typename T> static inline T __ldcs(const T *p)
{
	return *p;
}
template <typename T> static inline T __ldcg(const T *p)
{
	return *p;
}
template <typename T> static inline void __stcs(T *p, T value)
{
	*p = value;
}
template <typename T> static inline void __stcg(T *p, T value)
{
	*p = value;
}

#endif
