/* SPDX-License-Identifier: Apache-2.0 */
/* What a client of the checkpoint service is configured with, and the events that it reports. */
#ifndef MUSTER_CKPTD_PLAN_H
#define MUSTER_CKPTD_PLAN_H

#include <stdint.h>

#include "checkpoint/directory/ckpt_dir.h"
#include "checkpoint/directory/retention.h"
#include "checkpoint/format/snapshot.h"
#include "checkpoint/format/snapshot_memory.h"
#include "common/err.h"

/* The outcome of one save, or news about the service. Texts are valid only during the callback. */
enum ckptd_event_type {
	CKPTD_WRITTEN,   /* with several writers: this part is durable; the buffer is free */
	CKPTD_DURABLE,   /* the checkpoint is committed; the buffer is free. Only part 0 gets this event
					  */
	CKPTD_FAILED,    /* the save failed; status and text say why. The buffer is free */
	CKPTD_RESTARTED, /* the service was lost and another took over; text says why and how many saves
						were not durable */
	CKPTD_GONE, /* the service was lost and no other could be started (text). The next save tries
				   again */
};

struct ckptd_event {
	enum ckptd_event_type type;
	int64_t step;
	uint64_t bytes;
	double seconds;          /* from hand-over to durable */
	enum exit_status status; /* of FAILED; EXIT_FAULT when the directory has another owner */
	const char *text;
};

/* All pointers are borrowed until ckptd_client_close. */
struct ckptd_plan {
	const struct ckpt_dir *dir;
	const char *token; /* the directory owner's */
	const struct snapshot_memory *memory;
	const struct snapshot *snapshot; /* the layout: data pointers point into memory->base[0];
										members that change from step to step are ignored */
	struct retention retention;
	const char *socket; /* the node's service; NULL: $MUSTER_CKPTD; where that is unset or dead, a
						   service is started */
	const char *host;   /* part 0 of several: this node's address that other nodes can reach */
	const char *first;  /* parts other than 0: ckptd_client_address of part 0 */
	double timeout;     /* seconds to start or reach a service */
	void (*event)(void *arg,
		const struct ckptd_event *event); /* on the client's thread; must not call the client */
	void *arg;
};

#endif
