/* SPDX-License-Identifier: Apache-2.0 */
/* The copy stream of the GPU (struct copy_stream): copies beside the computing, with events
 * that order its stream and the training's stream. */
#ifndef MUSTER_COPY_STREAM_H
#define MUSTER_COPY_STREAM_H

#include "common/err.h"
#include "trainer/ops/device.h"

struct cuda_copy_stream;

/* NULL on error. */
struct cuda_copy_stream *cuda_copy_stream_create(struct err *err);
/* Waits for the copies. `copy_stream` may be NULL. */
void cuda_copy_stream_destroy(struct cuda_copy_stream *copy_stream);

extern const struct copy_stream cuda_copy_stream;

#endif
