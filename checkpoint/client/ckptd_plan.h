/* SPDX-License-Identifier: Apache-2.0 */
/* What a client of the checkpoint service is configured with, and what it reports. */
#ifndef MUSTER_CKPTD_PLAN_H
#define MUSTER_CKPTD_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "checkpoint/directory/ckpt_dir.h"
#include "checkpoint/directory/retention.h"
#include "checkpoint/format/snapshot.h"
#include "checkpoint/format/snapshot_memory.h"
#include "common/err.h"

/* All pointers but `host` and `first` are borrowed until ckptd_client_close. */
struct ckptd_plan {
	const struct ckpt_dir *dir;
	const char *token; /* the directory owner's */
	const struct snapshot_memory *memory;
	const struct snapshot *snapshot; /* attempt, world_size, seed, part, parts and shard_size of all
										saves; the other members are ignored */
	struct retention retention;
	const char *socket; /* the node's service; NULL: $MUSTER_CKPTD; where that is unset or dead, a
						   service is started */
	const char *host;   /* part 0 of several: this node's address that other nodes can reach */
	const char *first;  /* parts other than 0: ckptd_client_address of part 0 */
	double timeout;     /* seconds to start or reach a service */
	/* The callbacks but the last run on the client's thread; they must not call the client. They
	 * may be NULL. `complete` comes before a buffer is handed over for the first time. It waits
	 * until all of the step is in the buffer. -1: the step can't be had, and its save fails with
	 * err. */
	int (*complete)(void *arg, int buffer, const struct save_step *step, struct err *err);
	/* A save has ended, or this part of it is written; the buffer is free. Only part 0's saves
	 * become DURABLE. */
	void (*ended)(void *arg, const struct save_result *result);
	/* The service was lost, and `text` says why. Another one took over, which `text` says too; or
	 * none could be started, and the next save tries again. */
	void (*lost)(void *arg, const char *text);
	/* On the thread that asks for a buffer, with the client locked: whether this one may be filled
	 * now. Those before it hold saves then. NULL: each may. */
	bool (*may_fill)(void *arg, int buffer);
	void *arg;
};

#endif
