/* SPDX-License-Identifier: Apache-2.0 */
/* Little-endian integers at any address, since all our formats are little-endian; and conversions
 * of half-precision floats. */
#ifndef MUSTER_BYTES_H
#define MUSTER_BYTES_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

/* clang-format off: a line each */
static inline uint16_t bytes_le16(const void *p)
{
	uint16_t v;
	memcpy(&v, p, sizeof v);
	return le16toh(v);
}
static inline uint32_t bytes_le32(const void *p)
{
	uint32_t v;
	memcpy(&v, p, sizeof v);
	return le32toh(v);
}
static inline uint64_t bytes_le64(const void *p)
{
	uint64_t v;
	memcpy(&v, p, sizeof v);
	return le64toh(v);
}
static inline void bytes_put_le16(void *p, uint16_t v)
{
	v = htole16(v);
	memcpy(p, &v, sizeof v);
}
static inline void bytes_put_le32(void *p, uint32_t v)
{
	v = htole32(v);
	memcpy(p, &v, sizeof v);
}
static inline void bytes_put_le64(void *p, uint64_t v)
{
	v = htole64(v);
	memcpy(p, &v, sizeof v);
}

/* The bits of a float, as metrics and records carry them. */
static inline uint32_t bytes_of_float(float f)
{
	uint32_t v;
	memcpy(&v, &f, sizeof v);
	return v;
}
static inline float bytes_to_float(uint32_t v)
{
	float f;
	memcpy(&f, &v, sizeof f);
	return f;
}

/* Half-precision formats of weight files to float, exactly. bfloat16 is the upper half of a float;
 * IEEE 754 binary16 has 5 bits of exponent and 10 of fraction. */
static inline float bytes_bf16_to_float(uint16_t v)
{
	return bytes_to_float((uint32_t)v << 16);
}
/* clang-format on */
static inline float bytes_f16_to_float(uint16_t v)
{
	const uint32_t sign = (uint32_t)(v >> 15) << 31, exponent = v >> 10 & 31, fraction = v & 1023;
	if (exponent == 0)
		return bytes_to_float(sign | bytes_of_float((float)fraction * 0x1p-24f));
	return bytes_to_float(sign | (exponent == 31 ? 255u : exponent + 112) << 23 | fraction << 13);
}

/* To bfloat16, rounded to nearest, ties to even. A NaN stays a NaN. */
static inline uint16_t bytes_float_to_bf16(float v)
{
	uint32_t bits = bytes_of_float(v);
	if ((bits & 0x7fffffffu) > 0x7f800000u)
		return (uint16_t)(bits >> 16 | 0x40);
	return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

#endif
