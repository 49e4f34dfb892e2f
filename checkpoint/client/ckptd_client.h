/* SPDX-License-Identifier: Apache-2.0 */
/* The trainer's side of the checkpoint service (doc/ckptd-protocol.md): finds or starts
 * muster-ckptd, passes it the snapshot memory and the checkpoint directory, and hands over one
 * buffer after the other. A buffer is handed over when ckptd_client_save returns 0: from then on it
 * reaches the disk even if this process dies. When the service dies, the client finds or starts
 * another one and hands it everything that was not durable. */
#ifndef MUSTER_CKPTD_CLIENT_H
#define MUSTER_CKPTD_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "checkpoint/client/ckptd_plan.h"
#include "common/err.h"

struct ckptd_client;

/* Finds or starts the service and attaches to it. `plan` is copied, but what it points to is
 * borrowed until ckptd_client_close. NULL with err set on an error. */
struct ckptd_client *ckptd_client_open(const struct ckptd_plan *plan, struct err *err);

/* Where the services of the other parts report to: "HOST:PORT:SECRET"; "" with one part. When the
 * service is replaced, the address stays valid only if the new service can take the port. If it
 * can't, an error is logged and a save of several parts fails at its deadline. */
const char *ckptd_client_address(const struct ckptd_client *client);

/* Pid of the service, or 0 when there is none; for tests and messages. */
int64_t ckptd_client_service(const struct ckptd_client *client);

/* Returns the first buffer that may be filled: neither `live` nor handed over or being written.
 * Waits up to `seconds` for one, for the hand-over of the save before, and for the end of the save
 * of `live` (-1: no buffer is live). -1: there is none. */
int ckptd_client_buffer(struct ckptd_client *client, int live, double seconds);

/* Queues the buffer, which the client's thread completes and hands over. `snapshot` describes what
 * is in it, but its data pointers point into buffer 0; its arrays and texts are borrowed until the
 * save has ended. The plan's `ended` tells what becomes of it. -1: it can't be queued. */
int ckptd_client_begin(struct ckptd_client *client, int buffer, const struct snapshot *snapshot,
	struct err *err);

/* The same, and waits until the buffer is handed over. -1 with err set also when no service could
 * be found or started; the buffer is free again. */
int ckptd_client_save(struct ckptd_client *client, int buffer, const struct snapshot *snapshot,
	struct err *err);

/* Waits until the save of `step` has ended (part 0: committed; other parts: written). Returns 0, or
 * -1 with the save's error, or with EXIT_LOST when the save still runs after `seconds`. */
int ckptd_client_wait(struct ckptd_client *client, int64_t step, double seconds, struct err *err);

/* Waits up to `seconds` until all buffers are free, and closes the connection: the service finishes
 * what was handed over. False when a save is not even handed over by then: the thread hangs, and
 * the client stays. NULL is allowed. */
bool ckptd_client_close(struct ckptd_client *client, double seconds);

#endif
