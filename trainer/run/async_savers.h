/* SPDX-License-Identifier: Apache-2.0 */
/* The designated ranks: who saves which part of the state (--ckpt-writers), and how they learn what
 * rank 0 knows. */
#ifndef MUSTER_ASYNC_SAVERS_H
#define MUSTER_ASYNC_SAVERS_H

#include "common/err.h"
#include "trainer/run/run.h"

/* Collective, once state and records stand: starts run->saver on every designated rank. Nothing
 * without --ckpt-dir. An error that all ranks have is ERR_SHARED. */
int async_savers_start(struct run *run, struct err *err);

#endif
