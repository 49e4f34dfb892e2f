/* SPDX-License-Identifier: Apache-2.0 */
/* The trainer's side of the checkpoint service (doc/ckptd-protocol.md): finds or starts muster-ckptd, shows it the
 * memory of the snapshots and the checkpoint directory, and hands over one slot after the other.
 *
 * A slot is handed over when ckptd_client_save returns 0: from then on it reaches the disk whatever becomes of this process. When
 * the service dies, another is started and gets everything that was not durable again. */
#ifndef MUSTER_CKPTD_CLIENT_H
#define MUSTER_CKPTD_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "checkpoint/ckpt_dir.h"
#include "checkpoint/retention.h"
#include "checkpoint/snapshot.h"
#include "checkpoint/snapshot_memory.h"
#include "common/err.h"

struct ckptd_client;

/* What became of one save, or a piece of news about the service. Texts are valid during the call only. */
enum ckptd_event_type {
	CKPTD_WRITTEN, /* this part is durable (several writers); the slot is free */
	CKPTD_DURABLE, /* the checkpoint is committed; only part 0 hears of it. The slot is free */
	CKPTD_FAILED,  /* the save failed; status and text say why. The slot is free */
	CKPTD_RESTARTED, /* the service was lost; another took over (text says why and what was handed over again) */
	CKPTD_GONE,    /* the service was lost and no other could be started (text). Tried again at the next save */
};

struct ckptd_event {
	enum ckptd_event_type type;
	int64_t step;
	uint64_t bytes;
	double seconds;           /* from hand-over to durable */
	enum exit_status status;  /* of FAILED; EXIT_FAULT when the directory has another owner */
	const char *text;
};

/* Everything is borrowed until ckptd_client_close. */
struct ckptd_plan {
	const struct ckpt_dir *dir;
	const char *token;                    /* of the directory's owner */
	const struct snapshot_memory *memory;
	const struct snapshot *snapshot;      /* the layout: its data pointers point into memory->base[0]; the members that
	                                       * change from step to step don't count */
	struct retention retention;
	const char *socket;                   /* of the node's service; NULL: $MUSTER_CKPTD; where that is unset or dead, one is started */
	const char *host;                     /* part 0 of several: address of this node that the others can reach */
	const char *first;                    /* parts from 1 on: what ckptd_client_address gave part 0 */
	double timeout;                       /* seconds to start or reach a service */
	void (*event)(void *arg, const struct ckptd_event *event); /* from the client's thread; must not call the client */
	void *arg;
};

/* Finds or starts the service and attaches to it. */
struct ckptd_client *ckptd_client_open(const struct ckptd_plan *plan, struct err *err);

/* Where the other parts' services report to: "HOST:PORT:SECRET"; "" with one part. It stays the same when the service has to
 * be replaced only if the new one can take the port; else a save of several parts fails by its deadline, aloud. */
const char *ckptd_client_address(const struct ckptd_client *client);

/* Pid of the service, for tests and messages. */
int64_t ckptd_client_service(const struct ckptd_client *client);

/* A slot other than `live` that is neither being written nor handed over, once `live` is not either (-1: none such), waiting up
 * to `seconds`; -1 when there is none. */
int ckptd_client_slot(struct ckptd_client *client, int live, double seconds);

/* What of a snapshot changes from step to step. */
struct ckptd_step {
	int64_t step;
	uint64_t cursor;
	double loss, validation_loss; /* NAN: not known */
};

/* Hands the slot over. -1: no service could be had; the slot is free again. */
int ckptd_client_save(struct ckptd_client *client, int slot, const struct ckptd_step *step, struct err *err);

/* Waits until the save of `step` has ended (part 0: committed; others: written). 0 when it is, its error else; EXIT_LOST when it
 * still runs after `seconds`. */
int ckptd_client_wait(struct ckptd_client *client, int64_t step, double seconds, struct err *err);

/* Leaves without waiting for what was handed over: the service finishes that. NULL is allowed. */
void ckptd_client_close(struct ckptd_client *client);

#endif
