/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU's copies beside what it computes (struct ops_copy_stream): a stream of their own, and the
 * events between it and the one of the ops. */
#ifndef MUSTER_COPY_STREAM_H
#define MUSTER_COPY_STREAM_H

#include "common/err.h"
#include "trainer/ops/ops.h"

struct cuda_copy_stream;

/* NULL on error. */
struct cuda_copy_stream *cuda_copy_stream_create(struct err *err);
/* Waits for the copies. NULL is allowed. */
void cuda_copy_stream_destroy(struct cuda_copy_stream *copy_stream);

extern const struct ops_copy_stream cuda_copy_stream_ops;

#endif
