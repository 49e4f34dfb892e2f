/* SPDX-License-Identifier: Apache-2.0 */
/* A GPU as a device: its state, and how work that is queued on it fails. Shared by the files that
 * fill the device's table, and by the ops. */
#ifndef MUSTER_CUDA_CUDA_H
#define MUSTER_CUDA_CUDA_H

#include <pthread.h>
#include <stdbool.h>

#include "trainer/cuda/host/check.h"
#include "trainer/ops/device.h"

#define CUDA_EVENTS 64 /* to wait for an older number is to wait for a newer event */
#define CUDA_PUTS 16   /* parts of batches that may be on their way */
#define CUDA_PUT_BYTES ((size_t)256 << 10) /* bytes of each at most */

/* The struct in device->state. */
struct cuda {
	struct device device;
	int number; /* the runtime's */
	char card[160];
	void *stream;              /* cudaStream_t: all that the training queues runs in order */
	void *comm_stream;         /* only with several ranks */
	void *events[CUDA_EVENTS]; /* cudaEvent_t, recorded in the training's stream */
	uint64_t recorded;
	void **graph_events; /* [graph_event_count] cudaEvent_t of the graph that was replayed last */
	bool capturing, spoilt; /* `capturer` is capturing a graph; and something failed in it, which is
							   no error of the device */
	pthread_t capturer;
	int graph_event_count,
		replayed_to; /* the graph event that record_event() returns now, from 1; 0: none */
	struct cuda_copy_stream *copy_stream;
	char *puts;                  /* [CUDA_PUTS][CUDA_PUT_BYTES] pinned staging for put() */
	void *put_events[CUDA_PUTS]; /* cudaEvent_t: the part was copied */
	unsigned int put_next;

	pthread_mutex_t lock; /* guards what follows */
	bool failed;
	struct err err; /* the first error */
};

static inline struct cuda *cuda_of(struct device *device)
{
	return device->state;
}

/* Called before work is queued (CUDA_RUN does so): false if earlier work has failed. Makes the
 * device this thread's current one. */
bool cuda_begin(struct device *device);
/* Keeps the first error, since the functions that queue work return none. All results after it are
 * void. Returns whether there is none. */
bool cuda_note(struct device *device, int rc, const struct err *err);
/* The device's check(). */
int cuda_first_error(struct device *device, struct err *err);

/* After cuda_begin() runs a call that returns a cudaError_t, and keeps its error. */
#define CUDA_RUN(device, call) \
	(cuda_begin(device) ? cuda_keep(device, (int)(call), #call, __FILE__, __LINE__) : false)
bool cuda_keep(struct device *device, int code, const char *call, const char *file, int line);

/* The stream of the calling thread (comm_stream.c). */
void *cuda_stream_of(struct device *device);
/* Makes a stream; `first`: its work has priority over the other stream's. */
int cuda_stream_make(void **stream, bool first, struct err *err);
/* Waits for the stream's work. `stream` may be NULL. */
void cuda_stream_end(void *stream);

/* Fill in their entries of the table. */
void cuda_comm_stream_install(struct device *device);
void cuda_graph_install(struct device *device);
/* Frees graph.c's state. */
void cuda_graph_end(struct cuda *cuda);

#endif
