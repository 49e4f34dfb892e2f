/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU's plain operations as a device whose memory the host can't touch: every address that it
 * gives is one that no process has, so code that reads or writes it dies, and host memory that is
 * given to an op where the device's is due dies in there. Copies beside the ops are done when
 * somebody waits for them, and no sooner. */
#ifndef MUSTER_DEVICE_MEMORY_OPS_H
#define MUSTER_DEVICE_MEMORY_OPS_H

#include "trainer/ops/ops.h"

/* Freed by ops->destroy. */
struct ops *device_memory_ops_create(struct err *err);

/* Memory of the host can't be pinned. */
void device_memory_ops_refuse_pins(struct ops *ops);

/* Bytes that were copied into it and out of it so far. */
struct remote_traffic {
	size_t in, out;
};

struct remote_traffic device_memory_ops_traffic(const struct ops *ops);

#endif
