/* SPDX-License-Identifier: Apache-2.0 */
/* The layout of a snapshot as ATTACH carries it: offsets into a buffer instead of pointers. */
#ifndef MUSTER_CKPTD_ATTACH_H
#define MUSTER_CKPTD_ATTACH_H

#include "checkpoint/protocol/ckptd_proto.h"

/* Checks what single members can't show: every tensor and slice is in the buffer, aligned, and a
 * slice is in its tensor; names, parts and addresses are consistent. 0, or -1 with status
 * EXIT_DATA. */
int ckptd_attach_check(const struct ckptd_attach *attach, struct err *err);

/* Fills in the tensors, slices and other members of `attach` that describe the snapshot, whose
 * pointers must point into buffer 0 of `memory`. Texts are borrowed; the caller frees the two
 * arrays. -1 with err set when a pointer is outside the buffer. */
int ckptd_attach_describe(struct ckptd_attach *attach, const struct snapshot *snapshot,
	const struct snapshot_memory *memory, struct err *err);

/* The reverse: a snapshot whose data is in the buffer at `base`. Its texts are borrowed from
 * `attach`; ckptd_attach_free releases its arrays. */
int ckptd_attach_snapshot(const struct ckptd_attach *attach, const void *base,
	struct snapshot *snapshot, struct err *err);
void ckptd_attach_free(struct snapshot *snapshot);

#endif
