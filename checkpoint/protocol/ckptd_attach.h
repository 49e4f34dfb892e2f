/* SPDX-License-Identifier: Apache-2.0 */
/* A snapshot's layout as ATTACH carries it: offsets in a buffer in place of pointers. */
#ifndef MUSTER_CKPTD_ATTACH_H
#define MUSTER_CKPTD_ATTACH_H

#include "checkpoint/protocol/ckptd_proto.h"

/* What a single member can't show: every tensor and slice lies in the buffer, aligned, and in its
 * tensor; names, parts and addresses fit together. Status EXIT_DATA. */
int ckptd_attach_check(const struct ckptd_attach *attach, struct err *err);

/* Fills in tensors, slices and what else of `attach` describes the snapshot, whose pointers lie in
 * buffer 0 of `memory`. Texts are borrowed; the two arrays are the caller's to free. What does not
 * lie in the buffer is refused. */
int ckptd_attach_describe(struct ckptd_attach *attach, const struct snapshot *snapshot,
	const struct snapshot_memory *memory, struct err *err);

/* The way back: a snapshot in the buffer at `base`. Its texts are borrowed from `attach`;
 * ckptd_attach_free releases its arrays. */
int ckptd_attach_snapshot(const struct ckptd_attach *attach, const void *base,
	struct snapshot *snapshot, struct err *err);
void ckptd_attach_free(struct snapshot *snapshot);

#endif
