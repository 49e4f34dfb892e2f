/* SPDX-License-Identifier: Apache-2.0 */
/* A designated rank's saves: memory that holds the state is handed over to the checkpoint service,
 * which makes this rank's part of it durable whatever becomes of this process, and training goes
 * on. Of a state in host memory it is the state's own, and training goes on in other memory; one
 * that lies on a device is copied, while the device goes on up to the next update. */
#ifndef MUSTER_ASYNC_SAVER_H
#define MUSTER_ASYNC_SAVER_H

#include <stdbool.h>
#include <stdint.h>

#include "checkpoint/directory/ckpt_dir.h"
#include "checkpoint/directory/retention.h"
#include "common/err.h"
#include "trainer/state/state.h"

/* What every checkpoint of this attempt has in common; borrowed until async_saver_stop. */
struct async_saver_plan {
	const struct ckpt_dir *dir;
	const char *token; /* of the directory's owner */
	int attempt, world_size;
	uint64_t seed, global_batch;
	const char *config_json, *numerics_json, *model_json;
	struct retention retention;
	uint64_t shard_size;
	int part, writers; /* this rank's number among the designated ranks, and how many there are;
						* fewer write when there are fewer tensors */
	const struct zero_shard *shards; /* NULL, or who keeps which elements of the optimizer's state:
										rank by rank, each a writer */
	size_t shard_count;
	int buffers;       /* snapshots at once, 1 or 2; 0: as many as fit into the memory */
	size_t reserve;    /* bytes that the ranks of this node have yet to touch, for that choice */
	int sharers;       /* ranks of this node that make the same choice from the same memory */
	const char *host;  /* part 0 of several: where the other nodes reach this one */
	const char *first; /* the others: async_saver_address of part 0 */
	int64_t newest;    /* the newest durable step, -1 for none */
	double patience;   /* seconds that training waits for the save before, while all ranks wait with
						  it */
	double last_patience; /* the same for the last save, and for its end */
	double start_timeout; /* seconds to find or start the service */
	void (*before)(
		void *arg); /* called from the saver's thread before each hand-over; may be NULL */
	void *arg;
};

struct async_saver;

/* The numbers of a step that its checkpoint records; NAN: not known. */
struct async_saver_losses {
	double training, validation;
};

/* A save that has become durable. */
struct async_saver_saved {
	int64_t step;
	uint64_t bytes;
	double stall, flush; /* seconds that training stood still for it, and from the hand-over until
							it was durable */
};

/* Makes the memory, moves a state in host memory into it, starts the thread and finds or starts the
 * service. *saver becomes NULL when there is nothing for this part to write. */
int async_saver_start(struct async_saver **saver, const struct async_saver_plan *plan,
	struct state *state, struct err *err);

/* Part 0 of several: where the others' services report to; else "". */
const char *async_saver_address(const struct async_saver *saver);

/* Bytes of memory that the snapshots take beside the state. */
size_t async_saver_memory(const struct async_saver *saver);

/* Begins to hand the state over; the next state_update leaves it as it is and goes on elsewhere. A
 * step that is durable or on its way is not saved again. While there is no memory for that this
 * waits with the plan's patience (`last`: last_patience), and then the step is not saved. A save
 * that fails is reported by a log line; the checkpoints that are there stay and training may go on.
 */
void async_saver_save(struct async_saver *saver, const struct state *state,
	const struct async_saver_losses *losses, bool last);

/* Waits for the save of `step`, with last_patience: until it is committed (part 0) or its part is
 * written (the others). 0 when it is, else the error of its save, or EXIT_LOST when it still runs.
 */
int async_saver_wait(struct async_saver *saver, uint64_t step, struct err *err);

/* Takes the oldest save that has become durable and was not asked for yet; part 0 only. */
bool async_saver_take(struct async_saver *saver, struct async_saver_saved *saved);

/* Exit status for this attempt when the directory has another owner now, 0 while it is ours. */
int async_saver_fault(struct async_saver *saver);

/* Waits for the save in flight, with last_patience, and ends the thread. The state is gone then.
 * NULL is allowed. */
void async_saver_stop(struct async_saver *saver);

#endif
