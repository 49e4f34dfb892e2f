/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers for tests of kernels, of the values that a type has. */
#ifndef MUSTER_CUDA_FLOATS_H
#define MUSTER_CUDA_FLOATS_H

#include <stddef.h>
#include <stdint.h>

#include "trainer/cuda/kernels/type.h"

/* `count` floats in [-scale, scale), rounded to what `type` can hold; from malloc. */
float *cuda_floats(size_t count, float scale, uint32_t seed, enum cuda_type type);

/* Rounds them as a tensor of `type` does. */
void cuda_floats_round(float *x, size_t count, enum cuda_type type);

/* The elements of a tensor of `type` that holds `count` floats, in the host's memory; from malloc.
 */
void *cuda_floats_packed(const float *x, size_t count, enum cuda_type type);

/* A device's copy of `count` floats, which are rounded to `type`; device_free() takes it. */
void *cuda_floats_to_device(const float *x, size_t count, enum cuda_type type);

/* The floats that `count` elements of `type` are, in the host's memory; from malloc. */
float *cuda_floats_of(const void *elements, size_t count, enum cuda_type type);

#endif
