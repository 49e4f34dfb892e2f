/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU's copies beside what it computes (struct ops_side): a stream of their own, and the events between it and the one of the ops. */
#ifndef MUSTER_CUDA_SIDE_H
#define MUSTER_CUDA_SIDE_H

#include "common/err.h"
#include "trainer/ops/ops.h"

struct cuda_side;

/* NULL on error. */
struct cuda_side *cuda_side_create(struct err *err);
/* Waits for the copies. NULL is allowed. */
void cuda_side_destroy(struct cuda_side *side);

extern const struct ops_side cuda_side_ops;

#endif
