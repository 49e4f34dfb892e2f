/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint that a program reads. */
#ifndef MUSTER_SAVED_H
#define MUSTER_SAVED_H

#include "checkpoint/load/ckpt.h"
#include "common/err.h"
#include "lib/muster.h"

/* Takes ownership of `ckpt`, even on an error; NULL with err set then. */
struct muster_saved *saved_make(struct ckpt *ckpt, struct err *err);

#endif
