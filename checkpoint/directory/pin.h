/* SPDX-License-Identifier: Apache-2.0 */
/* Pins: a pinned checkpoint is never removed (doc/checkpoint-format.md, section 4.1). */
#ifndef MUSTER_PIN_H
#define MUSTER_PIN_H

#include <stdint.h>

#include "checkpoint/directory/ckpt_dir.h"
#include "common/err.h"

#define PIN_NAME "pinned"

/* Pins the checkpoint of `step`, durably; it may be pinned already. When it returns 0, the
 * checkpoint exists and will stay. No such step: -1 with EXIT_USAGE. */
int pin_set(const struct ckpt_dir *dir, int64_t step, struct err *err);

/* Removes the pin, durably. A checkpoint without a pin is no error. */
int pin_clear(const struct ckpt_dir *dir, int64_t step, struct err *err);

/* Whether the folder `name` of `dirfd` is pinned: 1, 0, or -1 when that can't be found out. */
int pin_is_set(int dirfd, const char *name, struct err *err);

#endif
