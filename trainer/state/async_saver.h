/* SPDX-License-Identifier: Apache-2.0 */
/* The async saver: hands a designated rank's snapshots over to the checkpoint service while
 * training goes on. The service makes this rank's part durable whatever becomes of this process. Of
 * a state in host memory the state's own buffer is handed over, and training goes on in another
 * one. A state on a device is copied, while the device goes on until the next update. */
#ifndef MUSTER_ASYNC_SAVER_H
#define MUSTER_ASYNC_SAVER_H

#include <stdbool.h>
#include <stdint.h>

#include "checkpoint/directory/ckpt_dir.h"
#include "checkpoint/directory/retention.h"
#include "checkpoint/format/snapshot.h"
#include "common/err.h"
#include "trainer/state/state.h"

/* What all checkpoints of this attempt have in common; borrowed until async_saver_stop. */
struct async_saver_plan {
	const struct ckpt_dir *dir;
	const char *token; /* of the directory's owner */
	int attempt, world_size;
	uint64_t seed, global_batch;
	const char *config_json, *numerics_json, *model_json;
	struct retention retention;
	uint64_t shard_size;
	int part, writers; /* this rank's number among the designated ranks, and the number of these;
						  with fewer tensors, fewer ranks write */
	const struct zero_shard *shards; /* which rank keeps which elements of the optimizer's state,
										rank by rank, each rank a writer; NULL: not shared out */
	size_t shard_count;
	int buffers;       /* snapshots at once: 1 or 2; 0: as many as the memory allows */
	size_t reserve;    /* bytes that ranks of this node have yet to touch, for that choice */
	int sharers;       /* ranks of this node that make the same choice at the same time */
	const char *host;  /* part 0 of several: the address under which other nodes reach this one */
	const char *first; /* other parts: async_saver_address of part 0 */
	int64_t newest;    /* the newest durable step, -1 for none */
	double patience;   /* seconds that training waits for the save before; meanwhile all ranks wait
						  with it */
	double last_patience; /* the same for the last save, and then for its end */
	double start_timeout; /* seconds to find or start the service */
	/* Called on the client's thread before each hand-over; may be NULL. */
	void (*before)(void *arg);
	void *arg;
};

struct async_saver;

/* Makes the buffers, moves a state in host memory into one, and finds or starts the service. *saver
 * becomes NULL when this part has nothing to write. */
int async_saver_start(struct async_saver **saver, const struct async_saver_plan *plan,
	struct state *state, struct err *err);

/* Part 0 of several: the address that the others' services report to; else "". Borrowed. */
const char *async_saver_address(const struct async_saver *saver);

/* Bytes of the snapshots, beside the state. */
size_t async_saver_memory(const struct async_saver *saver);

/* Starts to hand the state over; the next state_update leaves the handed-over state as it is. A
 * step that is durable or on its way is not saved again. Waits for a free buffer with the plan's
 * patience (`last`: last_patience); where none becomes free, the step is not saved. A save that
 * fails only logs a line: the earlier checkpoints stay, and training may go on. Of `losses` only
 * the losses count. */
void async_saver_save(struct async_saver *saver, const struct state *state,
	const struct save_step *losses, bool last);

/* Waits for the save of `step`, with last_patience, until it is committed (part 0) or its part is
 * written (other parts). Returns 0 then; else -1 with the error of its save, or with EXIT_LOST when
 * it still runs. */
int async_saver_wait(struct async_saver *saver, uint64_t step, struct err *err);

/* Takes the result of the oldest durable save that was not taken yet; false when there is none.
 * Part 0 only. */
bool async_saver_take(struct async_saver *saver, struct save_result *saved);

/* Exit status for this attempt when the directory has another owner now; 0 while it is ours. */
int async_saver_fault(struct async_saver *saver);

/* Waits for the save in flight, with last_patience, and leaves the service. Frees a host state's
 * arenas. `saver` may be NULL. */
void async_saver_stop(struct async_saver *saver);

#endif
