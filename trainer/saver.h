/* SPDX-License-Identifier: Apache-2.0 */
/* Rank 0's saves: the state is copied between two steps and written by a thread while training goes on. One save is in
 * flight at a time. */
#ifndef MUSTER_SAVER_H
#define MUSTER_SAVER_H

#include <stdbool.h>
#include <stdint.h>

#include "checkpoint/ckpt_dir.h"
#include "checkpoint/retention.h"
#include "common/err.h"
#include "trainer/state.h"

/* What every checkpoint of this attempt has in common; borrowed until saver_stop. */
struct saver_plan {
	const struct ckpt_dir *dir;
	const char *token;           /* of the directory's owner */
	int attempt, world_size;
	uint64_t seed, global_batch;
	const char *config_json, *numerics_json, *model_json;
	struct retention retention;
	int64_t newest;              /* the newest durable step, -1 for none */
	double patience;             /* seconds that training waits for the save before, while all ranks wait with it */
	double last_patience;        /* the same for the last save, and for its end */
};

struct saver;

/* The numbers of a step that its checkpoint records; NAN: not known. */
struct saver_losses {
	double training, validation;
};

/* A save that has become durable. */
struct saver_saved {
	int64_t step;
	uint64_t bytes;
	double stall, flush; /* seconds that training stood still for it, and from the hand-over until it was durable */
};

/* Allocates the copy of the state and starts the thread. */
struct saver *saver_start(const struct saver_plan *plan, const struct state *state, struct err *err);

/* Copies the state and begins to save it. A step that is durable already, or is being saved, is not saved again. While
 * the save before is still under way this waits with the plan's patience (`last`: last_patience), and then the step is not
 * saved. A save that fails is reported by a log line; the checkpoints that are there stay and training
 * may go on. */
void saver_save(struct saver *saver, const struct state *state, const struct saver_losses *losses, bool last);

/* Takes the oldest save that has become durable and was not asked for yet. */
bool saver_take(struct saver *saver, struct saver_saved *saved);

/* Waits for the save in flight, with last_patience. 0 when `step` is durable, else the error of its save, or EXIT_LOST
 * when it still runs. */
int saver_wait(struct saver *saver, uint64_t step, struct err *err);

/* Exit status for this attempt when the directory has another owner now, 0 while it is ours. */
int saver_fault(struct saver *saver);

/* Waits for the save in flight, with last_patience, and ends the thread. NULL is allowed. */
void saver_stop(struct saver *saver);

#endif
