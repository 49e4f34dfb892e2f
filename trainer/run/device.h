/* SPDX-License-Identifier: Apache-2.0 */
/* The device that a run computes on: its choice, before anything else is made; the check of its
 * memory; its ops and their GEMM plans. */
#ifndef MUSTER_DEVICE_H
#define MUSTER_DEVICE_H

#include "trainer/run/run.h"

/* Chooses this rank's device by --device; call it after ident_discover. A chosen GPU is the current
 * device from now on. Settles --precision. Returns 0 with a GPU, GPU_NONE with the CPU, or -1; pass
 * the outcome, even an error, to device_agree. */
int device_choose(struct run *run, struct err *err);
/* Collective, with the outcome of device_choose: 0, ERR_SHARED or -1. */
int device_agree(struct run *run, int rc, struct err *err);

/* Opens run->comm with the provider that carries this device's memory. Returns 0, ERR_SHARED or
 * -1. */
int device_comm(struct run *run, struct err *err);

/* Makes run->ops and attaches them to run->comm. Refuses a run that can't fit into the GPU's
 * memory: run->model must exist, but nothing of it may be allocated yet. Returns 0 or -1. */
int device_ops(struct run *run, struct err *err);

/* Collective, after model_prepare, with --attention auto: takes cuDNN's attention if every rank
 * can, unless the checkpoint was made with our own. Returns 0 or -1. */
int device_attention(struct run *run, struct err *err);

/* Collective, after model_prepare: gives all ranks rank 0's GEMM plans, where there are any to
 * choose. Plans of the resumed checkpoint are used again if they fit. Returns 0, ERR_SHARED or
 * -1. */
int device_algorithms(struct run *run, struct err *err);

/* The part of the GPUs' peak that the training uses (MFU); 0 on CPUs, or where it is not known. */
double device_use(const struct run *run, double tokens_per_second);

#endif
