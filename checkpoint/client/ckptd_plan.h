/* SPDX-License-Identifier: Apache-2.0 */
/* What a client of the checkpoint service is given, and what it tells. */
#ifndef MUSTER_CKPTD_PLAN_H
#define MUSTER_CKPTD_PLAN_H

#include <stdint.h>

#include "checkpoint/directory/ckpt_dir.h"
#include "checkpoint/directory/retention.h"
#include "checkpoint/format/snapshot.h"
#include "checkpoint/format/snapshot_memory.h"
#include "common/err.h"

/* What became of one save, or a piece of news about the service. Texts are valid during the call
 * only. */
enum ckptd_event_type {
	CKPTD_WRITTEN,   /* this part is durable (several writers); the buffer is free */
	CKPTD_DURABLE,   /* the checkpoint is committed; only part 0 hears of it. The buffer is free */
	CKPTD_FAILED,    /* the save failed; status and text say why. The buffer is free */
	CKPTD_RESTARTED, /* the service was lost; another took over (text says why and what was handed
						over again) */
	CKPTD_GONE, /* the service was lost and no other could be started (text). Tried again at the
				   next save */
};

struct ckptd_event {
	enum ckptd_event_type type;
	int64_t step;
	uint64_t bytes;
	double seconds;          /* from hand-over to durable */
	enum exit_status status; /* of FAILED; EXIT_FAULT when the directory has another owner */
	const char *text;
};

/* Everything is borrowed until ckptd_client_close. */
struct ckptd_plan {
	const struct ckpt_dir *dir;
	const char *token; /* of the directory's owner */
	const struct snapshot_memory *memory;
	const struct snapshot *snapshot; /* the layout: its data pointers point into memory->base[0];
									  * the members that change from step to step don't count */
	struct retention retention;
	const char *socket; /* of the node's service; NULL: $MUSTER_CKPTD; where that is unset or dead,
						   one is started */
	const char *host;   /* part 0 of several: address of this node that the others can reach */
	const char *first;  /* parts from 1 on: what ckptd_client_address gave part 0 */
	double timeout;     /* seconds to start or reach a service */
	void (*event)(void *arg,
		const struct ckptd_event *event); /* from the client's thread; must not call the client */
	void *arg;
};

/* What of a snapshot changes from step to step. */
struct ckptd_step {
	int64_t step;
	uint64_t cursor;
	double loss, validation_loss; /* NAN: not known */
};

#endif
