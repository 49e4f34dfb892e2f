/* SPDX-License-Identifier: Apache-2.0 */
/* Floating-point numbers narrower than fp32, in weight files and on the way between ranks: BF16 (the upper half of fp32) and
 * F16 (IEEE 754 binary16). */
#ifndef MUSTER_NARROW_H
#define MUSTER_NARROW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "checkpoint/safetensors.h"

/* Rounds to the nearest, ties to even; what is too large becomes infinite, a NaN stays one. */
uint16_t narrow_to_bf16(float value);

/* Whether narrow_widen knows the dtype: F32, F16 and BF16. */
bool narrow_is_float(enum safetensors_dtype dtype);

/* `count` elements of such a dtype, little-endian and at any address, as fp32. */
void narrow_widen(enum safetensors_dtype dtype, const void *from, size_t count, float *to);

#endif
