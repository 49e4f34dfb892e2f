/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA's arithmetic by the C library's: what IEEE 754 defines has the GPU's bits, exp, log, tanh
 * and the like have not. */
#ifndef MUSTER_SHIM_CUDA_MATH_H
#define MUSTER_SHIM_CUDA_MATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

template <typename To, typename From> static inline To shim_bits(From from)
{
	static_assert(sizeof(To) == sizeof(From), "the same bits");
	To to;
	memcpy(&to, &from, sizeof to);
	return to;
}

/* clang-format off: a line each */
static inline unsigned int __float_as_uint(float x)
{
	return shim_bits<unsigned int>(x);
}
static inline int __float_as_int(float x)
{
	return shim_bits<int>(x);
}
static inline float __uint_as_float(unsigned int x)
{
	return shim_bits<float>(x);
}
static inline float __int_as_float(int x)
{
	return shim_bits<float>(x);
}
static inline long long __double_as_longlong(double x)
{
	return shim_bits<long long>(x);
}
static inline double __longlong_as_double(long long x)
{
	return shim_bits<double>(x);
}

static inline float __fadd_rn(float a, float b)
{
	return a + b;
}
static inline float __fsub_rn(float a, float b)
{
	return a - b;
}
static inline float __fmul_rn(float a, float b)
{
	return a * b;
}
static inline float __fdiv_rn(float a, float b)
{
	return a / b;
}
static inline float __fmaf_rn(float a, float b, float c)
{
	return fmaf(a, b, c);
}
static inline float __fsqrt_rn(float a)
{
	return sqrtf(a);
}
static inline float __frcp_rn(float a)
{
	return 1 / a;
}
static inline float __fdividef(float a, float b)
{
	return a / b;
}
static inline float rsqrtf(float a)
{
	return 1 / sqrtf(a);
}
/* glibc declares functions of these names, and has none. */
#define __expf(a) expf(a)
#define __logf(a) logf(a)

static inline int __popc(unsigned int x)
{
	return __builtin_popcount(x);
}
static inline int __ffs(int x)
{
	return __builtin_ffs(x);
}
static inline int __clz(int x)
{
	return x ? __builtin_clz((unsigned int)x) : 32;
}

static inline int min(int a, int b)
{
	return a < b ? a : b;
}
static inline int max(int a, int b)
{
	return a > b ? a : b;
}
static inline unsigned int min(unsigned int a, unsigned int b)
{
	return a < b ? a : b;
}
static inline unsigned int max(unsigned int a, unsigned int b)
{
	return a > b ? a : b;
}
static inline unsigned long min(unsigned long a, unsigned long b)
{
	return a < b ? a : b;
}
static inline unsigned long max(unsigned long a, unsigned long b)
{
	return a > b ? a : b;
}
static inline long min(long a, long b)
{
	return a < b ? a : b;
}
static inline long max(long a, long b)
{
	return a > b ? a : b;
}
static inline float min(float a, float b)
{
	return fminf(a, b);
}
static inline float max(float a, float b)
{
	return fmaxf(a, b);
}
/* clang-format on */

#endif
