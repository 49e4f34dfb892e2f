/* SPDX-License-Identifier: Apache-2.0 */
/* All ranks' devices, held against each other before anything is made on one: a failure of one rank
 * is told where its success would have been, ranks compute on GPUs or on CPUs alike, and no two on
 * one GPU unless that is wanted. */
#ifndef MUSTER_GPU_MEET_H
#define MUSTER_GPU_MEET_H

#include "launch/rdzv.h"
#include "trainer/ops/gpu.h"

/* What a rank tells the others. */
struct gpu_word {
	int32_t status; /* exit status of a failure, or 0 */
	int32_t on_gpu; /* else it computes on the CPU */
	unsigned char uuid[GPU_UUID_BYTES];
	char name[128];
	char node[64];
	char text[sizeof((struct err *)0)->text]; /* of the failure */
};

/* Collective among the ranks of a world of several that have a driver; one that has none, and
 * computes on the CPU, says nothing, and is named. `rc` and `err` are this rank's outcome of the
 * choice, 0 or GPU_NONE with the CPU, or -1. Returns 0, ERR_SHARED (trainer/comm/status_exchange.h)
 * with the same text and status on all ranks, or -1 where the ranks couldn't meet. */
int gpu_meet(struct rdzv *rdzv, const struct ident *ident, const struct gpu *gpu, int rc,
	bool share, struct err *err);

/* Whether these ranks can train together: 0, or -1 with the line that all of them get. */
int gpu_judge(const struct gpu_word *words, int world_size, bool share, struct err *err);

#endif
