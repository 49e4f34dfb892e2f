/* SPDX-License-Identifier: Apache-2.0 */
/* What a training has the GPU do beside its operations: copies to and from pinned memory on a
 * stream, collectives of NCCL on another one, each kept busy by a thread. What fails at the
 * beginning fails the test. */
#ifndef MUSTER_TESTS_GPU_NOISE_H
#define MUSTER_TESTS_GPU_NOISE_H

#include <stdbool.h>
#include <stddef.h>

struct gpu_noise;

/* Copies of that many bytes; with `collectives` also an all-reduce and a send to itself of a
 * communicator of one rank. */
struct gpu_noise *gpu_noise_begin(size_t bytes, bool collectives);
void gpu_noise_end(struct gpu_noise *noise);

/* Rounds that are over. */
size_t gpu_noise_copies(struct gpu_noise *noise);
size_t gpu_noise_collectives(struct gpu_noise *noise);

/* NULL, or why there are no collectives; static text. */
const char *gpu_noise_missing(const struct gpu_noise *noise);

#endif
