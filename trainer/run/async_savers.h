/* SPDX-License-Identifier: Apache-2.0 */
/* Starts the async savers of the designated ranks: decides which rank saves which part of the state
 * (--ckpt-writers), and tells them what only rank 0 knows. */
#ifndef MUSTER_ASYNC_SAVERS_H
#define MUSTER_ASYNC_SAVERS_H

#include "common/err.h"
#include "trainer/run/run.h"

/* Collective, once the state and the records are complete: starts run->saver on every designated
 * rank. Does nothing without --ckpt-dir. Returns 0, ERR_SHARED when all ranks have the error, or
 * -1. */
int async_savers_start(struct run *run, struct err *err);

#endif
