/* SPDX-License-Identifier: Apache-2.0 */
/* Pins: the mark on a checkpoint that retention never removes it (doc/checkpoint-format.md,
 * section 4.1). */
#ifndef MUSTER_PIN_H
#define MUSTER_PIN_H

#include <stdint.h>

#include "checkpoint/directory/ckpt_dir.h"
#include "common/err.h"

#define PIN_NAME "pinned"

/* Pins the checkpoint of `step`, durably; one that is pinned already stays so. When it returns 0
 * the checkpoint is there and will stay. No such step: EXIT_USAGE. */
int pin_set(const struct ckpt_dir *dir, int64_t step, struct err *err);

/* Takes the pin away, durably. One that is not there is no error. */
int pin_clear(const struct ckpt_dir *dir, int64_t step, struct err *err);

/* Whether the folder `name` of `dirfd` holds a pin: 1, 0, or -1 where that can't be known. */
int pin_is_set(int dirfd, const char *name, struct err *err);

#endif
