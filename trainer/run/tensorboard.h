/* SPDX-License-Identifier: Apache-2.0 */
/* --tensorboard: what the metrics say, also in event files for TensorBoard, one for each attempt in
 * the folder "tensorboard" of the checkpoint directory. Steps that an attempt does again replace
 * those of the attempts before. */
#ifndef MUSTER_TENSORBOARD_H
#define MUSTER_TENSORBOARD_H

#include <stdint.h>

#include "checkpoint/format/snapshot.h"
#include "common/err.h"
#include "trainer/run/metrics.h"

struct tensorboard;

/* Creates the file of `attempt`, whose first step is `first`. */
struct tensorboard *tensorboard_open(int dirfd, int attempt, uint64_t first, struct err *err);

/* Append what the functions of metrics.h of the same name do. `board` may be NULL: then nothing
 * happens. An error is for a warning. */
int tensorboard_step(struct tensorboard *board, const struct metrics_step *step, struct err *err);
int tensorboard_validation(struct tensorboard *board, uint64_t step, float loss, struct err *err);
int tensorboard_checkpoint(struct tensorboard *board, const struct save_result *saved,
	struct err *err);

/* `board` may be NULL. */
void tensorboard_close(struct tensorboard *board);

#endif
