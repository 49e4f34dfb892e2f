/* SPDX-License-Identifier: Apache-2.0 */
/* AdamW on the GPU, over all tensors of a run of the arenas in one launch; exactly the bits of
 * struct ops' adamw. */
#ifndef MUSTER_CUDA_ADAMW_H
#define MUSTER_CUDA_ADAMW_H

#include <stddef.h>
#include <stdint.h>

#include "trainer/cuda/kernels/type.h"
#include "trainer/ops/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where the update reads and writes; device pointers. `to` may be `from`. */
struct cuda_adamw {
	struct adamw_state to, from;
	const float *grad;
	void *compute;       /* new weights for the passes; with CUDA_FP32 may be to.weights */
	enum cuda_type type; /* of compute */
};

/* AdamW on these chunks of the arenas, one block of threads each; `chunks` and `params` are in
 * device memory. A masked step changes nothing. Queues the kernel and returns 0 or the cudaError_t
 * of the launch. */
int cuda_adamw_chunks(const struct cuda_adamw *arenas, const struct adamw_chunk *chunks,
	size_t count, const struct step_params *params, void *stream);

#ifdef __cplusplus
}
#endif

#endif
