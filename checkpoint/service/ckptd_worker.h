/* SPDX-License-Identifier: Apache-2.0 */
/* The thread that does one client's saves, in the order in which they came: writes, waits for the
 * other parts, commits, removes old checkpoints. It speaks to nobody; whoever owns it collects its
 * news. */
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
	struct ckpt_dir dir;               /* borrowed descriptor */
	const struct snapshot_memory *memory;
	double patience; /* seconds for the other parts of a save */
	int wake;        /* an eventfd that is written to when there is news */
};

struct ckptd_worker;

struct ckptd_worker *ckptd_worker_start(const struct ckptd_worker_plan *plan, struct err *err);

/* Queues a save. -1: no memory. */
int ckptd_worker_save(struct ckptd_worker *worker, const struct ckptd_save *save);

/* Another part was told, to part 0: `text` is taken over, or NULL with a fault. -1: there is no
 * room for it. */
int ckptd_worker_tell(struct ckptd_worker *worker, int64_t step, int part, char *text, size_t size,
	const struct err *fault);

/* That part's client has gone: no part of `step` or a later one will be told. */
void ckptd_worker_left(struct ckptd_worker *worker, int part, int64_t step);

/* The next piece of news, or NULL; the caller's, to be freed with ckptd_news_free. */
struct ckptd_news *ckptd_worker_news(struct ckptd_worker *worker);

/* Whether something that was handed over has not had its end. */
bool ckptd_worker_busy(struct ckptd_worker *worker);

/* The client has gone: from now on the worker shows that the directory's owner still writes. */
void ckptd_worker_alone(struct ckptd_worker *worker);

/* Parts that were not told by then are not waited for. */
void ckptd_worker_hurry(struct ckptd_worker *worker, struct deadline deadline);

/* One call for each save that has not had its end, with a line that says how far it is. */
void ckptd_worker_list(struct ckptd_worker *worker, void (*line)(void *arg, const char *text),
	void *arg);

/* Waits for the thread and frees it. Only when it is not busy: what is queued would be lost. */
void ckptd_worker_stop(struct ckptd_worker *worker);

#endif
