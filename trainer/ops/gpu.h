/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the GPU that this rank computes on. It asks the CUDA driver, not the runtime: the driver
 * knows what is visible to this process, whatever CUDA_VISIBLE_DEVICES holds (numbers, UUIDs, parts
 * of a card), and a program that never computes on a GPU needs neither at run time. */
#ifndef MUSTER_GPU_H
#define MUSTER_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "common/ident.h"

#define GPU_UUID_BYTES 16
#define GPU_UUID_TEXT 41 /* "GPU-" and five groups of digits */
#define GPU_OLDEST 80    /* the lowest compute capability with bf16, times ten */

struct gpu {
	int index;                          /* among the GPUs that this process sees */
	int visible;                        /* number of GPUs that this process sees */
	unsigned char uuid[GPU_UUID_BYTES]; /* of the card, or of the part of it */
	char name[128];                     /* "NVIDIA H200" */
	int capability;                     /* compute capability, times ten: 90 */
	int processors;                     /* streaming multiprocessors */
	uint64_t bytes;                     /* of device memory */
};

/* The calls of the CUDA driver that are used. Each has the meaning and the result of the driver
 * function in its comment; they are borrowed from a library that stays loaded. */
struct gpu_driver {
	int (*init)(unsigned flags);                         /* cuInit */
	int (*version)(int *version);                        /* cuDriverGetVersion */
	int (*count)(int *count);                            /* cuDeviceGetCount */
	int (*get)(int *device, int index);                  /* cuDeviceGet */
	int (*uuid)(unsigned char *uuid, int device);        /* cuDeviceGetUuid_v2 */
	int (*name)(char *name, int size, int device);       /* cuDeviceGetName */
	int (*total)(size_t *bytes, int device);             /* cuDeviceTotalMem_v2 */
	int (*attribute)(int *value, int which, int device); /* cuDeviceGetAttribute */
	int (*error_name)(int error, const char **name);     /* cuGetErrorName */
};

/* gpu_choose and gpu_driver_load return this where only the CPU can compute: the node has no
 * driver, or the process sees no device. */
#define GPU_NONE 1

/* Loads the driver of this node, libcuda.so.1. Returns 0; GPU_NONE with the reason in `err`
 * (EXIT_USAGE) where there is none; -1 (EXIT_USAGE) where it is older than CUDA 11.4. */
int gpu_driver_load(struct gpu_driver *driver, struct err *err);

/* Chooses this rank's GPU: the only one that it sees, or of several the one with its local rank's
 * number. With `share`, ranks beyond the last GPU begin again at the first. `runtime` is the CUDA
 * version that the program was built with (13000 for 13.0). Returns 0; GPU_NONE with the reason in
 * `err` where no device is visible; -1 where a visible device can't be used: its driver or card is
 * too old, or there are fewer devices than ranks. */
int gpu_choose(const struct gpu_driver *driver, const struct ident *ident, int runtime, bool share,
	struct gpu *gpu, struct err *err);

/* Writes "GPU-8a7e…", as nvidia-smi -L prints it, and returns `out`. */
char *gpu_uuid_text(const unsigned char *uuid, char out[GPU_UUID_TEXT]);

#endif
