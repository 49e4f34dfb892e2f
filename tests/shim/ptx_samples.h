/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels around single instructions, for the host and the GPU. Each launcher returns what LAUNCH
 * does. */
#ifndef MUSTER_SHIM_PTX_SAMPLES_H
#define MUSTER_SHIM_PTX_SAMPLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* out[i] = bf16 of in[i]; eight at a time through load8 and store8, or one at a time. count: a
 * multiple of 8. */
int sample_bf16(uint16_t *out, const float *in, size_t count, bool by_eight);
int sample_float(float *out, const uint16_t *in, size_t count, bool by_eight);

/* The same through pair_of. */
int sample_pairs(uint32_t *out, const float *in, size_t pairs);

/* d[16][8] += a[16][16] · b[16][8], all by rows, by one warp that puts each element where the
 * layout wants it. */
int sample_mma(float *d, const uint16_t *a, const uint16_t *b);

/* out[16][8] = a[16][16] · b[16][8] through shared memory: A by ldmatrix, B by its transposed form,
 * of two or of four matrices. */
int sample_mma_by_ldmatrix(float *out, const uint16_t *a, const uint16_t *b, bool by_four);

/* r[lane][4] of the matrices m[4][8][8]. */
int sample_ldmatrix(uint32_t *r, const uint16_t *m, int count, bool transposed);

/* out[i] = in[i], 16 bytes a thread and stage, through two stages of shared memory; zeros from
 * element `valid` on, a multiple of
 * 4. count: a multiple of 4 · threads. Without the wait or without the barrier after it: a fault.
 */
int sample_copy(uint32_t *out, const uint32_t *in, size_t count, size_t valid, unsigned int threads,
	bool wait, bool barrier);

/* Addresses that no GPU takes. */
int sample_ldmatrix_at(size_t byte);
int sample_copy_at(const void *from, size_t byte);

#ifdef __cplusplus
}
#endif

#endif
