/* SPDX-License-Identifier: Apache-2.0 */
/* A device that computes: its memory, copies to and from it, and the order of the work that is
 * queued on it, as a table of functions. What it computes are its ops (ops.h); trainer/cpu/ and
 * trainer/cuda/ each implement both tables. */
#ifndef MUSTER_OPS_DEVICE_H
#define MUSTER_OPS_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

struct device;

/* The copy stream: copies of a snapshot out of device memory, beside what the device computes. A
 * transfer is a number below DEVICE_TRANSFERS for the copies between its begin() and its end(). Any
 * thread may call these. Functions that return an int return -1 on error; it is the snapshot's
 * error and does not end the training. */
#define DEVICE_TRANSFERS 8

struct copy_stream {
	/* Pins whole pages of the host in physical memory until unpin(), so that the device copies to
	 * them without the host's help. */
	int (*pin)(struct device *device, void *pages, size_t bytes, struct err *err);
	void (*unpin)(struct device *device, void *pages);
	/* Allocates pinned memory; NULL on error. */
	void *(*alloc)(struct device *device, size_t bytes, struct err *err);
	void (*release)(struct device *device, void *p);
	/* Begins a transfer: the copies until its end() belong to it, and start on the device after the
	 * work queued so far. */
	int (*begin)(struct device *device, int transfer, struct err *err);
	int (*copy)(struct device *device, void *pinned, const void *from, size_t bytes,
		struct err *err);
	int (*end)(struct device *device, int transfer, struct err *err);
	/* 1 when all copies up to the transfer's end are done, else 0. */
	int (*done)(struct device *device, int transfer, struct err *err);
	/* Makes work that is queued from now on start, on the device, only once the transfer is done;
	 * the host does not wait. Returns 0 where it is done already, else 1. */
	int (*wait_transfer)(struct device *device, int transfer, struct err *err);
	/* Of a transfer that is done: the seconds for which wait_transfer() made the device stand
	 * still, and the seconds that its copies took. */
	double (*waited)(struct device *device, int transfer);
	double (*took)(struct device *device, int transfer);
};

struct device {
	void *state;      /* owned by the implementation */
	const char *card; /* of a GPU, for the numerics record; NULL on a CPU */

	/* Zeroed, 64-byte aligned; NULL when out of memory. */
	void *(*alloc)(struct device *device, size_t bytes);
	void (*release)(struct device *device, void *p);

	/* These are NULL where memory is the host's. copy_in and copy_out wait for the device; the host
	 * may reuse its side as soon as they return. */
	void (*copy_in)(struct device *device, void *to, const void *host, size_t bytes);
	void (*copy_out)(struct device *device, void *host, const void *from, size_t bytes);
	/* copy_in() for the inputs of each pass: it does not wait for the device, unless the host is so
	 * far ahead that every staging buffer is still in use. */
	void (*put)(struct device *device, void *to, const void *host, size_t bytes);
	const struct copy_stream *copy_stream;

	/* NULL where work is complete when its call returns. Returns 0, or -1 with the first error of
	 * all work queued so far: neither ops nor most functions of this table return an error. */
	int (*check)(struct device *device, struct err *err);

	/* These are NULL where work is complete when its call returns. Elsewhere it is queued, and the
	 * communicator's thread has a stream of its own for the ops that it calls (add, tree_reduce,
	 * square_sums). comm_stream() makes that stream, once, and returns it; NULL on error. */
	void *(*comm_stream)(struct device *device, struct err *err);
	/* Whether the communicator's stream is idle: 1, 0 not yet, -1 on error. */
	int (*comm_stream_idle)(struct device *device, struct err *err);
	/* Records an event after all that the training's thread has queued so far. */
	uint64_t (*record_event)(struct device *device);
	/* Makes the communicator's stream the calling thread's from now on, and lets the work it queues
	 * start only after the event. */
	void (*wait_event)(struct device *device, uint64_t event);

	/* These are NULL where nothing can be replayed. Between capture() and captured() what the
	 * training's thread queues is not executed but recorded, with its addresses and numbers; each
	 * replay() executes it, for the same bits. Copies of host memory and waits are not allowed in
	 * it. It holds up to `events` events, which capture_event() records, with numbers from 0.
	 * capture() returning false or captured() returning NULL means that this can't be captured:
	 * nothing was executed, and it is not an error of the device. A graph may be dropped while it
	 * still runs. */
	bool (*capture)(struct device *device, int events);
	void (*capture_event)(struct device *device, int number);
	void *(*captured)(struct device *device);
	void (*replay)(struct device *device, void *graph);
	/* From now on record_event() returns event `number` of the graph that was replayed last; -1: as
	 * usual. */
	void (*replayed_to)(struct device *device, int number);
	void (*drop_graph)(struct device *device, void *graph);
};

/* Whether `alloc` returns device memory, which the host can't touch. */
static inline bool device_has_memory(const struct device *device)
{
	return device->copy_in != NULL;
}

static inline int device_check(struct device *device, struct err *err)
{
	return device->check ? device->check(device, err) : 0;
}

#endif
