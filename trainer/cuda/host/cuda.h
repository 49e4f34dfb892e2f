/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the GPU's ops: their state, how they fail, and the functions that fill the
 * table. */
#ifndef MUSTER_CUDA_CUDA_H
#define MUSTER_CUDA_CUDA_H

#include <pthread.h>
#include <stdbool.h>

#include "trainer/cuda/host/check.h"
#include "trainer/cuda/host/gemm.h"
#include "trainer/cuda/host/copy_stream.h"
#include "trainer/cuda/kernels/type.h"
#include "trainer/ops/gpu.h"
#include "trainer/ops/ops.h"

#define CUDA_PARAMS 16 /* copies of step_params that may be on their way */
#define CUDA_EVENTS 64 /* to wait for an older number is to wait for a newer event */
#define CUDA_PUTS 16   /* parts of batches that may be on their way */
#define CUDA_PUT_BYTES ((size_t)256 << 10) /* bytes of each at most */

/* A stream that a thread queues ops on. */
struct cuda_stream {
	void *stream; /* cudaStream_t: all its ops run in order */
};

/* The struct in ops->state. */
struct cuda {
	struct step_params params;       /* host copy, which the trainer writes */
	struct step_params *params_ring; /* [CUDA_PARAMS] pinned */
	unsigned int params_next;
	struct step_params *params_device;          /* read by kernels */
	struct cuda_stream training, communication; /* the second only with several ranks */
	void *stream;                               /* training.stream */
	void *events[CUDA_EVENTS];                  /* cudaEvent_t, recorded in the training's stream */
	uint64_t recorded;
	void **graph_events; /* [graph_event_count] cudaEvent_t of the graph that was replayed last */
	bool capturing, spoilt; /* `capturer` is capturing a graph; and something failed in it, which is
							   no error of the ops */
	pthread_t capturer;
	int graph_event_count,
		replayed_to;     /* the graph event that record_event() returns now, from 1; 0: none */
	enum cuda_type type; /* of activations */
	enum gemm_mode mode;
	int device;
	char card[160], libraries[400];
	struct ops_shapes shapes; /* given to prepare() */
	struct gemm_engine *engine;
	struct cuda_copy_stream *copy_stream; /* the copies beside the ops */
	void *workspace;
	struct attention_cudnn *cudnn; /* NULL: our own attention */
	void *cudnn_workspace;
	void *scratch; /* used by one op at a time */
	void *logits;  /* of one chunk of rows */
	size_t scratch_bytes, logits_bytes;
	char *puts;                  /* [CUDA_PUTS][CUDA_PUT_BYTES] pinned staging for put() */
	void *put_events[CUDA_PUTS]; /* cudaEvent_t: the part was copied */
	unsigned int put_next;

	pthread_mutex_t lock; /* guards what follows */
	bool failed;
	struct err err; /* the first error */
};

static inline struct cuda *cuda_of(struct ops *ops)
{
	return ops->state;
}

/* Called at the beginning of an op: false if an earlier op has failed. Makes the device this
 * thread's current one. */
bool cuda_begin(struct ops *ops);
/* Keeps the first error, since ops can't return one; all results after it are void. Returns whether
 * there is none. */
bool cuda_note(struct ops *ops, int rc, const struct err *err);

/* Runs a call that returns a cudaError_t, and keeps its error. */
#define CUDA_RUN(ops, call) cuda_run(ops, (int)(call), #call, __FILE__, __LINE__)
bool cuda_run(struct ops *ops, int code, const char *call, const char *file, int line);

/* The stream of the calling thread (comm_stream.c). */
struct cuda_stream *cuda_stream_of(struct ops *ops);
/* `first`: its work has priority over the other stream's. */
int cuda_stream_make(struct cuda_stream *comm_stream, bool first, struct err *err);
/* `comm_stream` may be zeroed or only partly made. */
void cuda_stream_end(struct cuda_stream *comm_stream);

/* Frees graph.c's state. */
void cuda_graph_end(struct cuda *cuda);

void cuda_graph_install(struct ops *ops);
void cuda_stream_install(struct ops *ops);
void cuda_linear_install(struct ops *ops);
void cuda_passes_install(struct ops *ops);

#endif
