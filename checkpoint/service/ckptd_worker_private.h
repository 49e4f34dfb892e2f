/* SPDX-License-Identifier: Apache-2.0 */
/* The members of a worker, for ckptd_worker.c, which writes and serves its session, and
 * ckptd_worker_decide.c, which commits what several services have written. */
#ifndef MUSTER_CKPTD_WORKER_PRIVATE_H
#define MUSTER_CKPTD_WORKER_PRIVATE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "checkpoint/directory/retention.h"
#include "checkpoint/save/ckpt_save.h"
#include "checkpoint/service/ckptd_parts.h"
#include "checkpoint/service/ckptd_worker.h"

/* A queued save. */
struct job {
	struct job *next;
	struct ckptd_message message; /* a SAVE; owned */
};

struct ckptd_worker {
	struct ckptd_worker_plan plan;
	struct retention retention;
	pthread_t thread;
	double next_progress, next_beat; /* used by the thread alone */
	int mapped_buffer; /* used by the thread alone: buffers before it are mapped, as are the first
						  `mapped` bytes in it */
	size_t mapped;
	int64_t left_over; /* used by the thread alone: step of a failed save whose files may be
						  complete; -1: none */

	pthread_mutex_t lock; /* protects all members below */
	pthread_cond_t changed;
	struct job *jobs; /* the first one is being written while `working` */
	bool working, ending, alone;
	int64_t deciding;     /* step of the save that is being decided; -1: none */
	uint64_t done, total; /* bytes of the save that is being written */
	bool progressed;
	struct ckptd_parts *parts; /* for part 0 of several; else NULL */
	struct ckptd_news_queue news;
};

/* ---- called by the worker's thread, without the lock ---- */

/* Posts news for the session; takes ownership of `text`, which may be NULL. */
void ckptd_worker_post(struct ckptd_worker *worker, enum ckptd_news_type type, int buffer,
	const struct save_result *result, char *text);

/* Removes what is no longer needed once `durable` is durable. */
void ckptd_worker_clean_up(struct ckptd_worker *worker, int64_t durable);

/* Commits or gives up a save of several parts that is over; the caller still owns `save`. */
void ckptd_worker_decide(struct ckptd_worker *worker, enum ckptd_parts_verdict verdict,
	struct ckptd_parts_step *save);

#endif
