/* SPDX-License-Identifier: Apache-2.0 */
/* Creates the GPU's table of a device. */
#ifndef MUSTER_CUDA_DEVICE_CUDA_H
#define MUSTER_CUDA_DEVICE_CUDA_H

#include "common/err.h"
#include "trainer/ops/device.h"
#include "trainer/ops/gpu.h"

/* The CUDA version of the runtime that this program was built with, 13000 for 13.0. */
int device_cuda_runtime(void);

/* Makes a GPU the current device of this thread, and of every thread that queues work later. Call
 * it before any other call of CUDA. *available: bytes of its memory that are free. */
int device_cuda_begin(const struct gpu *gpu, uint64_t *available, struct err *err);

/* The GPU of device_cuda_begin. NULL on error. */
struct device *device_cuda_create(const struct gpu *gpu, struct err *err);
/* Waits for all that is queued. `device` may be NULL. */
void device_cuda_destroy(struct device *device);

#endif
