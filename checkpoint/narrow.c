/* SPDX-License-Identifier: Apache-2.0 */
/* Conversions by bits, so that they are the same on every processor. */
#include "checkpoint/narrow.h"

#include <math.h>
#include <string.h>

#include "common/bytes.h"

uint16_t narrow_to_bf16(float value)
{
	uint32_t bits = bytes_of_float(value);
	if (isnan(value))
		return (uint16_t)(bits >> 16 | 0x40); /* quiet: a payload in the lower half must not leave an infinity */
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

bool narrow_is_float(enum safetensors_dtype dtype)
{
	return dtype == SAFETENSORS_F32 || dtype == SAFETENSORS_F16 || dtype == SAFETENSORS_BF16;
}

void narrow_widen(enum safetensors_dtype dtype, const void *from, size_t count, float *to)
{
	const char *bytes = from;
	if (dtype == SAFETENSORS_F32)
		memcpy(to, from, count * sizeof *to);
	else
		for (size_t i = 0; i < count; i++) {
			uint16_t bits = bytes_le16(bytes + 2 * i);
			to[i] = dtype == SAFETENSORS_BF16 ? bytes_bf16_to_float(bits) : bytes_f16_to_float(bits);
		}
}
