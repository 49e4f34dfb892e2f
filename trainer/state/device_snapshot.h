/* SPDX-License-Identifier: Apache-2.0 */
/* Device snapshots: a state that lies on a device is copied into memory that the checkpoint service
 * can be given, beside what the device computes. The update after a snapshot starts, on the device,
 * only when its copies are done, so that the snapshot is the state of one step. */
#ifndef MUSTER_DEVICE_SNAPSHOT_H
#define MUSTER_DEVICE_SNAPSHOT_H

#include <stdbool.h>

#include "checkpoint/format/snapshot_memory.h"
#include "common/err.h"
#include "trainer/state/layout.h"
#include "trainer/state/state.h"

struct device_snapshot;

/* Makes `buffers` buffers. The pages that the layout keeps are allocated and pinned. Where the
 * system refuses to pin them, it logs that once, and the copies go through a few pinned pieces, for
 * which the host waits before the next update. Borrows the state, which must have been uploaded,
 * and the layout. NULL on error. */
struct device_snapshot *device_snapshot_start(struct state *state, const struct layout *layout,
	int buffers, struct err *err);

const struct snapshot_memory *device_snapshot_memory(const struct device_snapshot *snapshot_copy);
bool device_snapshot_is_pinned(const struct device_snapshot *snapshot_copy);

/* Starts to copy the state, as the ops called so far leave it, into a buffer that nothing reads.
 * Only on the training's thread. */
int device_snapshot_begin(struct device_snapshot *snapshot_copy, int buffer, struct err *err);

/* Waits until the copies are done; EXIT_LOST when they are not within `patience` seconds. Call it
 * once after each device_snapshot_begin that returned 0, on any one thread. The buffer holds the
 * state only if this returns 0. */
int device_snapshot_finish(struct device_snapshot *snapshot_copy, double patience, struct err *err);

/* Of the last snapshot in the buffer, once it is finished: seconds that the update after it had to
 * wait, on the host or on the device; and seconds that the copies took on the device, 0 where that
 * was not measured. */
double device_snapshot_stall(struct device_snapshot *snapshot_copy, int buffer);
double device_snapshot_seconds(struct device_snapshot *snapshot_copy, int buffer);

/* Call it while nothing is being copied. `snapshot_copy` may be NULL. */
void device_snapshot_stop(struct device_snapshot *snapshot_copy);

#endif
