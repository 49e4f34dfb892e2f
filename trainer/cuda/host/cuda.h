/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the GPU's ops share: their state, how they fail, and the functions that fill
 * the table. */
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

#define CUDA_PARAMS 16 /* copies of the step's numbers that may be on their way */
#define CUDA_EVENTS 64 /* an older number waits for a newer one's event */
#define CUDA_PUTS 16   /* parts of batches that may be on their way, */
#define CUDA_PUT_BYTES ((size_t)256 << 10) /* of at most so many bytes each */

/* What a thread queues on. */
struct cuda_stream {
	void *stream; /* cudaStream_t: all ops, one behind the other */
};

/* Behind ops->state. */
struct cuda {
	struct step_params params;       /* the trainer's */
	struct step_params *params_ring; /* [CUDA_PARAMS] pinned, */
	unsigned int params_next;
	struct step_params *params_device;          /* and what kernels read */
	struct cuda_stream training, communication; /* the second only where ranks are several */
	void *stream;                               /* the training's */
	void *events[CUDA_EVENTS];                  /* cudaEvent_t, in that stream */
	uint64_t recorded;
	void **graph_events; /* [graph_event_count] the same, of the graph that was replayed last */
	bool capturing,
		spoilt; /* by that thread; and something failed in it, which is no error of the ops */
	pthread_t capturer;
	int graph_event_count,
		replayed_to;     /* which of them record_event() is now, from 1 on; 0: none */
	enum cuda_type type; /* of activations */
	enum gemm_mode mode;
	int device;
	char card[160], libraries[400];
	struct ops_shapes shapes; /* of prepare() */
	struct gemm_engine *engine;
	struct cuda_copy_stream *copy_stream; /* copies beside the ops */
	void *workspace;
	struct attention_cudnn *cudnn; /* NULL: our attention */
	void *cudnn_workspace;
	void *scratch; /* of one op at a time */
	void *logits;  /* of one chunk of rows */
	size_t scratch_bytes, logits_bytes;
	char *puts;                  /* [CUDA_PUTS][CUDA_PUT_BYTES] pinned: parts of batches, */
	void *put_events[CUDA_PUTS]; /* and when they have left (cudaEvent_t) */
	unsigned int put_next;

	pthread_mutex_t lock; /* of what follows */
	bool failed;
	struct err err; /* the first */
};

static inline struct cuda *cuda_of(struct ops *ops)
{
	return ops->state;
}

/* An op begins: false where one before has failed. Makes the device this thread's. */
bool cuda_begin(struct ops *ops);
/* Keeps the first error: ops have no way to fail, and what follows it is worth nothing. Returns
 * whether there is none. */
bool cuda_note(struct ops *ops, int rc, const struct err *err);

/* Runs what returns a cudaError_t. */
#define CUDA_RUN(ops, call) cuda_run(ops, (int)(call), #call, __FILE__, __LINE__)
bool cuda_run(struct ops *ops, int code, const char *call, const char *file, int line);

/* The stream of the calling thread (comm_stream.c). */
struct cuda_stream *cuda_stream_of(struct ops *ops);
/* `first`: what is queued on it goes before the other's. */
int cuda_stream_make(struct cuda_stream *comm_stream, bool first, struct err *err);
/* Zeroed is allowed, and so is one that was made in part. */
void cuda_stream_end(struct cuda_stream *comm_stream);

/* What graph.c keeps there. */
void cuda_graph_end(struct cuda *cuda);

void cuda_graph_install(struct ops *ops);
void cuda_stream_install(struct ops *ops);
void cuda_linear_install(struct ops *ops);
void cuda_passes_install(struct ops *ops);

#endif
