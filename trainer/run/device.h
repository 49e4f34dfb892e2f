/* SPDX-License-Identifier: Apache-2.0 */
/* What a run computes on: the choice before anything else is made, the check of its memory, its
 * operations and their algorithms. */
#ifndef MUSTER_DEVICE_H
#define MUSTER_DEVICE_H

#include "trainer/run/run.h"

/* This rank's choice by --device, behind ident_discover; on a GPU that is the current device from
 * now on. Settles --precision. The outcome, an error too, is for device_agree. */
int device_choose(struct run *run, struct err *err);
/* Collective, with the outcome of device_choose: 0, ERR_SHARED or -1. */
int device_agree(struct run *run, int rc, struct err *err);

/* run->comm, the one that carries what this run computes on. 0, ERR_SHARED or -1. */
int device_comm(struct run *run, struct err *err);

/* run->ops, known to run->comm. On a GPU it is refused what can't fit: run->model must be there,
 * and nothing of it allocated. */
int device_ops(struct run *run, struct err *err);

/* Collective, behind model_prepare: the algorithms of rank 0, where there are any to choose. Those
 * of the checkpoint that is resumed are used again if they fit. 0, ERR_SHARED or -1. */
int device_algorithms(struct run *run, struct err *err);

/* Part of what the GPUs could do at best; 0 on CPUs, or where that is not known. */
double device_use(const struct run *run, double tokens_per_second);

#endif
