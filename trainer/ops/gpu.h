/* SPDX-License-Identifier: Apache-2.0 */
/* Which GPU this rank computes on. The CUDA driver is asked, not the runtime: it knows what is
 * visible to this process, whatever CUDA_VISIBLE_DEVICES holds (numbers, UUIDs, parts of a card),
 * and a program that never computes on a GPU needs neither. */
#ifndef MUSTER_GPU_H
#define MUSTER_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "common/ident.h"

#define GPU_UUID_BYTES 16
#define GPU_UUID_TEXT 41 /* "GPU-" and five groups of digits */
#define GPU_OLDEST 80    /* the least compute capability that has bf16, times ten */

struct gpu {
	int index;                          /* among those that this process sees */
	int visible;                        /* how many these are */
	unsigned char uuid[GPU_UUID_BYTES]; /* of the card, or of the part of one */
	char name[128];                     /* "NVIDIA H200" */
	int capability;                     /* compute capability, times ten: 90 */
	int processors;                     /* streaming multiprocessors */
	uint64_t bytes;                     /* of its memory */
};

/* The calls of the CUDA driver that are needed, each with the meaning and the result of the one in
 * its comment. */
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

/* What gpu_choose returns where there is nothing to compute on but the CPU: no driver, or no device
 * that is visible. */
#define GPU_NONE 1

/* The driver of this node, libcuda.so.1. GPU_NONE with the reason in `err` (EXIT_USAGE) where there
 * is none. */
int gpu_driver_load(struct gpu_driver *driver, struct err *err);

/* This rank's GPU: the one that it sees, or of several that of its local rank; with `share` these
 * are dealt out again and again. `runtime` is the CUDA version that the program was built with
 * (13000 for 13.0). GPU_NONE with the reason in `err` where no device is visible; -1 where one is
 * that can't be used: a driver or a card that is too old, fewer devices than ranks. */
int gpu_choose(const struct gpu_driver *driver, const struct ident *ident, int runtime, bool share,
	struct gpu *gpu, struct err *err);

/* "GPU-8a7e…", as nvidia-smi -L prints it; returns `out`. */
char *gpu_uuid_text(const unsigned char *uuid, char out[GPU_UUID_TEXT]);

#endif
