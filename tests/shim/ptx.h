/* SPDX-License-Identifier: Apache-2.0 */
/* What the emulated instructions do between threads; cuda_ptx.h has what a thread does in memory.
 */
#ifndef MUSTER_SHIM_PTX_H
#define MUSTER_SHIM_PTX_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* trainer/cuda/kernels/ptx.h: mma_m16n8k16_bf16. Each element is one sum in fp64, rounded once: the
 * GPU's last bits are its own. */
void ptx_mma(float d[4], const uint32_t a[4], const uint32_t b[2]);

/* Of ldmatrix: the rows that the first `count` lanes name, all checked to be 16 aligned bytes of
 * shared memory. */
void ptx_rows(const void *own, const void **rows, int count);

/* A copy of 16 bytes that is under way. */
struct ptx_copy {
	void *to;
	const void *from; /* NULL: zeros */
};

/* Whether the copy is to be made at once; else ptx_finished() gives it when it must be there.
 * Nothing says which of these the GPU does, so ascending order makes it as late as may be,
 * descending at once, and the random ones either. */
bool ptx_copies_now(const struct ptx_copy *copy);
void ptx_commit(void);
/* The next copy that must be there when at most `groups` groups are under way; false when there is
 * none more. */
bool ptx_finished(int groups, struct ptx_copy *copy);

/* Of block.c: a new block begins. */
void ptx_reset(void);

#ifdef __cplusplus
}
#endif

#endif
