/* SPDX-License-Identifier: Apache-2.0 */
/* The thread that does one client's saves, in the order in which they came: it writes, waits for
 * the other parts, commits, and removes old checkpoints. It has no connections; its owner
 * collects its news. */
#ifndef MUSTER_CKPTD_WORKER_H
#define MUSTER_CKPTD_WORKER_H

#include "checkpoint/directory/ckpt_dir.h"
#include "checkpoint/format/snapshot_memory.h"
#include "checkpoint/protocol/ckptd_proto.h"
#include "checkpoint/service/ckptd_news.h"
#include "common/clock.h"
#include "common/err.h"

struct ckptd_worker_plan {
	const struct ckptd_attach *attach; /* borrowed */
	struct ckpt_dir dir;               /* the descriptor is borrowed */
	const struct snapshot_memory *memory;
	double patience; /* seconds to wait for the other parts of a save */
	int wake;        /* an eventfd to write to when there is news */
};

struct ckptd_worker;

struct ckptd_worker *ckptd_worker_start(const struct ckptd_worker_plan *plan, struct err *err);

/* Queues a SAVE, which ckptd_save_check has passed; takes ownership of the message. -1: out of
 * memory, and the message stays the caller's. */
int ckptd_worker_save(struct ckptd_worker *worker, struct ckptd_message *message);

/* For part 0: another part was reported. Takes ownership of `text`, or it is NULL and `fault` says
 * why. -1: no room for it. */
int ckptd_worker_tell(struct ckptd_worker *worker, int64_t step, int part, char *text, size_t size,
	const struct err *fault);

/* The client of that part has gone: its parts of `step` and later will not come. */
void ckptd_worker_left(struct ckptd_worker *worker, int part, int64_t step);

/* The next piece of news, or NULL; the caller frees it with ckptd_news_free. */
struct ckptd_news *ckptd_worker_news(struct ckptd_worker *worker);

/* Whether a save that was handed over has not ended. */
bool ckptd_worker_busy(struct ckptd_worker *worker);

/* The client has gone: from now on the worker writes the owner's heartbeat while it saves. */
void ckptd_worker_alone(struct ckptd_worker *worker);

/* Parts that have not been reported by the deadline are no longer waited for. */
void ckptd_worker_hurry(struct ckptd_worker *worker, struct deadline deadline);

/* Calls `line` for each save that has not ended, with its progress. */
void ckptd_worker_list(struct ckptd_worker *worker, void (*line)(void *arg, const char *text),
	void *arg);

/* Waits for the thread and frees the worker. Call it only when it is not busy, or queued saves are
 * lost. */
void ckptd_worker_stop(struct ckptd_worker *worker);

#endif
