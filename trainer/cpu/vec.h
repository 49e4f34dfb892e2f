/* SPDX-License-Identifier: Apache-2.0 */
/* Vectors of floats for one instruction set. The including file defines VEC_BITS as 512, 256 or 128
 * (portable).
 *
 * Every operation is one correctly rounded IEEE operation in each lane, including v_fma, and sums
 * over an array always run in LANES lanes, which v_fold adds in one order. So kernels written with
 * these give the same bits at every VEC_BITS. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#define LANES 16           /* in every sum over an array, whatever a vector's width */
#define VL (VEC_BITS / 32) /* floats in a vector */
#define LANE_VECS (LANES / VL)

#if VEC_BITS == 512

typedef __m512 vec;
static inline vec v_load(const float *p)
{
	return _mm512_loadu_ps(p);
}
static inline void v_store(float *p, vec a)
{
	_mm512_storeu_ps(p, a);
}
static inline void v_stream(float *p, vec a)
{
	_mm512_stream_ps(p, a);
}
static inline void v_stream_end(void)
{
	_mm_sfence();
}
static inline vec v_set(float a)
{
	return _mm512_set1_ps(a);
}
static inline vec v_fma(vec a, vec b, vec c)
{
	return _mm512_fmadd_ps(a, b, c);
}
static inline vec v_max(vec a, vec b)
{
	return _mm512_max_ps(a, b);
}
static inline vec v_sqrt(vec a)
{
	return _mm512_sqrt_ps(a);
}
/* a < b ? x : y in each lane; false where one is NaN. */
static inline vec v_if_less(vec a, vec b, vec x, vec y)
{
	return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x);
}
/* 2^n for the n in the low bits of an EXP_MAGIC + n; see v_exp. */
static inline vec v_power(vec biased)
{
	return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(biased), 23));
}

/* VL bfloat16s, exactly. */
static inline vec v_load_bf16(const uint16_t *p)
{
	const __m256i half = _mm256_loadu_si256((const __m256i *)p);
	return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

#elif VEC_BITS == 256

typedef __m256 vec;
static inline vec v_load(const float *p)
{
	return _mm256_loadu_ps(p);
}
static inline void v_store(float *p, vec a)
{
	_mm256_storeu_ps(p, a);
}
static inline void v_stream(float *p, vec a)
{
	_mm256_stream_ps(p, a);
}
static inline void v_stream_end(void)
{
	_mm_sfence();
}
static inline vec v_set(float a)
{
	return _mm256_set1_ps(a);
}
static inline vec v_fma(vec a, vec b, vec c)
{
	return _mm256_fmadd_ps(a, b, c);
}
static inline vec v_max(vec a, vec b)
{
	return _mm256_max_ps(a, b);
}
static inline vec v_sqrt(vec a)
{
	return _mm256_sqrt_ps(a);
}
static inline vec v_if_less(vec a, vec b, vec x, vec y)
{
	return _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
}
static inline vec v_power(vec biased)
{
	return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(biased), 23));
}
static inline vec v_load_bf16(const uint16_t *p)
{
	const __m128i half = _mm_loadu_si128((const __m128i *)p);
	return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

#else

typedef float vec __attribute__((vector_size(16)));
typedef int32_t vec_bits __attribute__((vector_size(16)));
static inline vec v_load(const float *p)
{
	vec a;
	memcpy(&a, p, sizeof(a));
	return a;
}
static inline void v_store(float *p, vec a)
{
	memcpy(p, &a, sizeof(a));
}
static inline void v_stream(float *p, vec a)
{
	v_store(p, a);
}
static inline void v_stream_end(void) {}
static inline vec v_set(float a)
{
	return (vec) { a, a, a, a };
}
static inline vec v_fma(vec a, vec b, vec c)
{
	return (vec) { fmaf(a[0], b[0], c[0]), fmaf(a[1], b[1], c[1]), fmaf(a[2], b[2], c[2]),
		fmaf(a[3], b[3], c[3]) };
}
static inline vec v_sqrt(vec a)
{
	return (vec) { sqrtf(a[0]), sqrtf(a[1]), sqrtf(a[2]), sqrtf(a[3]) };
}
static inline vec v_if_less(vec a, vec b, vec x, vec y)
{
	vec_bits mask = a < b;

	return (vec)(((vec_bits)x & mask) | ((vec_bits)y & ~mask));
}
static inline vec v_max(vec a, vec b)
{
	return v_if_less(b, a, a, b);
} /* as on x86: b where one is NaN */
static inline vec v_power(vec biased)
{
	return (vec)((vec_bits)biased << 23);
}
static inline vec v_load_bf16(const uint16_t *p)
{
	return (vec)((vec_bits) { p[0], p[1], p[2], p[3] } << 16);
}

#endif

/* The first n < VL floats of p, zeros after them. */
static inline vec v_load_part(const float *p, int n)
{
	float lanes[VL] = { 0 };

	memcpy(lanes, p, (size_t)n * sizeof(float));
	return v_load(lanes);
}

static inline void v_store_part(float *p, vec a, int n)
{
	float lanes[VL];

	v_store(lanes, a);
	memcpy(p, lanes, (size_t)n * sizeof(float));
}

static inline vec v_load_upto(const float *p, int n)
{
	return n >= VL ? v_load(p) : v_load_part(p, n);
}

static inline void v_store_upto(float *p, vec a, int n)
{
	if (n >= VL)
		v_store(p, a);
	else
		v_store_part(p, a, n);
}

/* As v_store_upto; with `stream`, a whole vector bypasses the caches, to an address that is aligned
 * to its size. Other threads see it after v_stream_end. */
static inline void v_store_past(float *p, vec a, int n, const bool stream)
{
	if (stream && n >= VL)
		v_stream(p, a);
	else
		v_store_upto(p, a, n);
}

/* Adds LANES lanes: the upper half is added to the lower half until one is left. */
static inline float v_fold(const vec sum[LANE_VECS])
{
	float lanes[LANES];

	for (int i = 0; i < LANE_VECS; i++)
		v_store(lanes + i * VL, sum[i]);
	for (int width = LANES / 2; width >= 1; width /= 2)
#pragma GCC unroll 8
		for (int j = 0; j < width; j++)
			lanes[j] += lanes[j + width];
	return lanes[0];
}

static inline float v_fold_max(vec a)
{
	float lanes[VL], max;

	v_store(lanes, a);
	max = lanes[0];
	for (int j = 1; j < VL; j++)
		max = lanes[j] > max ? lanes[j] : max;
	return max;
}

/* e^x with x = n·ln2 + r, |r| <= ln2/2, and a polynomial of degree 6 (the Taylor coefficients;
 * relative error below 2 ulp). 0 below EXP_LOW, where the result would leave the normal range;
 * infinite above EXP_HIGH; NaN stays NaN. */
#define EXP_LOW -87.0f
#define EXP_HIGH 88.37f
#define EXP_MAGIC \
	(12582912.0f \
		+ 127.0f) /* 1.5·2^23 + the exponent's bias: adding it leaves n + 127 in the low bits */

static inline vec v_exp(vec x)
{
	vec biased = v_fma(x, v_set(1.44269504088896341f), v_set(EXP_MAGIC));
	vec n = biased - v_set(EXP_MAGIC);
	vec r = v_fma(n, v_set(-0.693359375f), x);
	vec p = v_set(1.0f / 720);

	r = v_fma(n, v_set(2.12194440e-4f), r);
	p = v_fma(p, r, v_set(1.0f / 120));
	p = v_fma(p, r, v_set(1.0f / 24));
	p = v_fma(p, r, v_set(1.0f / 6));
	p = v_fma(p, r, v_set(0.5f));
	p = v_fma(p, r, v_set(1.0f));
	p = v_fma(p, r, v_set(1.0f));
	p = p * v_power(biased);
	p = v_if_less(x, v_set(EXP_LOW), v_set(0), p);
	return v_if_less(v_set(EXP_HIGH), x, v_set(INFINITY), p);
}
