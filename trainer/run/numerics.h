/* SPDX-License-Identifier: Apache-2.0 */
/* The numerics record: what the bits of a run depend on beside its configuration. Equal records
 * give equal bits. */
#ifndef MUSTER_NUMERICS_H
#define MUSTER_NUMERICS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "trainer/comm/comm.h"
#include "trainer/ops/ops.h"
#include "trainer/run/settings.h"

/* Makes the record: reduction, slots, microbatch, device, isa, libraries, build; on a GPU also card
 * and products (doc/gemm-plans-format.md); with the native reduction also communicator, world_size
 * and bucket_mb. NULL when out of memory. */
json_t *numerics_record(const struct settings *settings, struct ops *ops, const struct comm *comm);

/* Logs one line for each value that differs, and appends {"step", "name", "from", "to"} to
 * `changes`; with `refuse` the first difference is an error with status EXIT_DATA. */
int numerics_compare(const json_t *recorded, const json_t *present, bool refuse, uint64_t step,
	json_t *changes, struct err *err);

/* Collective: compares all ranks' records with rank 0's. Rank 0 logs each difference; with `refuse`
 * the first is an error of all ranks (ERR_SHARED). */
int numerics_agree(struct comm *comm, const json_t *present, bool refuse, struct err *err);

#endif
