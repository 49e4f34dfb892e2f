/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshots of a state that lies on a device: memory that the checkpoint service can be given, and
 * the copies into it, which run beside what the device computes. The update behind a snapshot
 * begins, on the device, when its copies are done, so that what is handed over is the state of one
 * step. */
#ifndef MUSTER_DEVICE_SNAPSHOT_H
#define MUSTER_DEVICE_SNAPSHOT_H

#include <stdbool.h>

#include "checkpoint/format/snapshot_memory.h"
#include "common/err.h"
#include "trainer/state/layout.h"
#include "trainer/state/state.h"

struct device_snapshot;

/* Makes `buffers` buffers. What the layout keeps of them is there and pinned; where the system
 * refuses that it is said once, and the copies go through a few pinned pieces, for which the update
 * behind a snapshot waits on the host. The state, which has been uploaded, and the layout are
 * borrowed. NULL on error. */
struct device_snapshot *device_snapshot_start(struct state *state, const struct layout *layout,
	int buffers, struct err *err);

const struct snapshot_memory *device_snapshot_memory(const struct device_snapshot *snapshot_copy);
bool device_snapshot_is_pinned(const struct device_snapshot *snapshot_copy);

/* Begins to copy the state, as the operations called so far leave it, into a buffer that nobody
 * reads. The thread that trains. */
int device_snapshot_begin(struct device_snapshot *snapshot_copy, int buffer, struct err *err);

/* Once behind each device_snapshot_begin that returned 0, by any one thread: waits until the copies
 * are done, EXIT_LOST when they are not after `patience` seconds. The buffer holds the state only
 * where this returns 0. */
int device_snapshot_finish(struct device_snapshot *snapshot_copy, double patience, struct err *err);

/* Of the last snapshot in the buffer, once it is finished: seconds for which the update behind it
 * had to wait, on the host or on the device, and how long the copies took the device; the latter 0
 * where that was not measured. */
double device_snapshot_stall(struct device_snapshot *snapshot_copy, int buffer);
double device_snapshot_seconds(struct device_snapshot *snapshot_copy, int buffer);

/* Nothing is being copied. NULL is allowed. */
void device_snapshot_stop(struct device_snapshot *snapshot_copy);

#endif
