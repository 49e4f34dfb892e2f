/* SPDX-License-Identifier: Apache-2.0 */
/* The trainer's side of the checkpoint service (doc/ckptd-protocol.md): finds or starts
 * muster-ckptd, shows it the memory of the snapshots and the checkpoint directory, and hands over
 * one buffer after the other.
 *
 * A buffer is handed over when ckptd_client_save returns 0: from then on it reaches the disk
 * whatever becomes of this process. When the service dies, another is started and gets everything
 * that was not durable again. */
#ifndef MUSTER_CKPTD_CLIENT_H
#define MUSTER_CKPTD_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "checkpoint/client/ckptd_plan.h"
#include "common/err.h"

struct ckptd_client;

/* Finds or starts the service and attaches to it. */
struct ckptd_client *ckptd_client_open(const struct ckptd_plan *plan, struct err *err);

/* Where the other parts' services report to: "HOST:PORT:SECRET"; "" with one part. It stays the
 * same when the service has to be replaced only if the new one can take the port; else a save of
 * several parts fails by its deadline, aloud. */
const char *ckptd_client_address(const struct ckptd_client *client);

/* Pid of the service, for tests and messages. */
int64_t ckptd_client_service(const struct ckptd_client *client);

/* A buffer other than `live` that is neither being written nor handed over, once `live` is not
 * either
 * (-1: none such), waiting up to `seconds`; -1 when there is none. */
int ckptd_client_buffer(struct ckptd_client *client, int live, double seconds);

/* Hands the buffer over. -1: no service could be had; the buffer is free again. */
int ckptd_client_save(struct ckptd_client *client, int buffer, const struct ckptd_step *step,
	struct err *err);

/* Waits until the save of `step` has ended (part 0: committed; others: written). 0 when it is, its
 * error else; EXIT_LOST when it still runs after `seconds`. */
int ckptd_client_wait(struct ckptd_client *client, int64_t step, double seconds, struct err *err);

/* Leaves without waiting for what was handed over: the service finishes that. NULL is allowed. */
void ckptd_client_close(struct ckptd_client *client);

#endif
