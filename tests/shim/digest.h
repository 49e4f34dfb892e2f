/* SPDX-License-Identifier: Apache-2.0 */
/* A hash of memory that is made where the memory is, so that a test need not copy it out to see
 * whether it is the same again. */
#ifndef MUSTER_SHIM_DIGEST_H
#define MUSTER_SHIM_DIGEST_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* *out += the sum over all bytes' words of a mix of each with its place: any change shows but with
 * a chance of 2^-64. Device pointers; `memory` lies at a multiple of 4 bytes. The sum is of
 * integers, in any order. Returns at once, with 0 or the cudaError_t. */
int digest(uint64_t *out, const void *memory, size_t bytes, void *stream);

#ifdef __cplusplus
}
#endif

#endif
