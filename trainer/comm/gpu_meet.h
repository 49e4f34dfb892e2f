/* SPDX-License-Identifier: Apache-2.0 */
/* Compares all ranks' devices before anything is made on one, so that every rank gets the same
 * error. A rank's failure is published where its success would have been; either all ranks compute
 * on GPUs or all on CPUs; and no two share a GPU unless that is wanted. */
#ifndef MUSTER_GPU_MEET_H
#define MUSTER_GPU_MEET_H

#include "launch/rank_status.h"
#include "trainer/ops/gpu.h"

/* What a rank tells the others of its device. Bytes, so that it may lie at any address. */
struct gpu_word {
	unsigned char on_gpu; /* 0: it computes on the CPU */
	unsigned char uuid[GPU_UUID_BYTES];
	char name[128];
};

/* Collective among the ranks of a world of several, as far as they have a driver; a rank that has
 * none, and so computes on the CPU, puts nothing, and the error names it. `rc` and `err` are this
 * rank's outcome of the choice: 0, GPU_NONE with the CPU, or -1. Returns 0, ERR_SHARED
 * (trainer/comm/status_exchange.h) with the same text and status on all ranks, or -1 where the
 * ranks couldn't meet. */
int gpu_meet(struct rdzv *rdzv, const struct ident *ident, const struct gpu *gpu, int rc,
	bool share, struct err *err);

/* Whether these ranks can train together. The data of a rank that has not failed is its struct
 * gpu_word. Returns what gpu_meet() does. */
int gpu_judge(const struct rank_status *words, int world_size, bool share, struct err *err);

#endif
