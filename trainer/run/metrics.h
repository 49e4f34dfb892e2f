/* SPDX-License-Identifier: Apache-2.0 */
/* Writes metrics-N.jsonl, one JSON object a line for each step, validation, sample text and
 * checkpoint of the directory's attempt N. Written by rank 0, flushed after each step. */
#ifndef MUSTER_METRICS_H
#define MUSTER_METRICS_H

#include <stdbool.h>
#include <stdint.h>

#include "checkpoint/format/snapshot.h"
#include "common/err.h"
#include "trainer/ddp/ddp.h"

struct metrics_step {
	uint64_t step;
	float loss, norm, learning_rate;
	double tokens_per_second, milliseconds, exposed, communication; /* last two: seconds */
	int ranks;
	struct ddp_cost cost;
	double use;   /* MFU; 0: not known */
	bool skipped; /* the update was left out, since the loss or the norm is not finite */
};

struct metrics;

/* Creates `metrics-ATTEMPT.jsonl` in the folder, durably. */
struct metrics *metrics_open(int dirfd, int attempt, struct err *err);

/* Append a line. When the file can't be written, lines are kept in memory and written by a later
 * call; the error is for a warning. */
int metrics_step(struct metrics *metrics, const struct metrics_step *step, struct err *err);
int metrics_checkpoint(struct metrics *metrics, const struct save_result *saved, struct err *err);
int metrics_validation(struct metrics *metrics, uint64_t step, float loss, struct err *err);
/* `text` is UTF-8. */
int metrics_sample(struct metrics *metrics, uint64_t step, const char *text, struct err *err);

/* Makes the lines durable; called before each save, so that no step up to a checkpoint lacks its
 * line. May be called from another thread, and then only that thread waits for the disk. */
int metrics_sync(struct metrics *metrics, struct err *err);

/* `metrics` may be NULL. */
void metrics_close(struct metrics *metrics);

#endif
