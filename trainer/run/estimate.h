/* SPDX-License-Identifier: Apache-2.0 */
/* Estimates the memory that a rank will need on its device, part by part, before anything is
 * allocated. So a run that can't fit is refused with the sum and the options that lower it, and
 * does not fail in the middle of its first step. */
#ifndef MUSTER_ESTIMATE_H
#define MUSTER_ESTIMATE_H

#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

enum estimate_part {
	ESTIMATE_WEIGHTS,   /* master weights, fp32 */
	ESTIMATE_COMPUTE,   /* the copy that passes read, where it has another type */
	ESTIMATE_MOMENTS,   /* both, of the elements that this rank keeps */
	ESTIMATE_GRADIENTS, /* all arenas */
	ESTIMATE_STAGING,   /* pieces of other ranks' gradients, and NCCL's */
	ESTIMATE_ACTIVATIONS,
	ESTIMATE_SCRATCH, /* of the ops, with the workspace of matrix products */
	ESTIMATE_PARTS
};

/* The sizes that the estimate is made from. */
struct estimate_facts {
	size_t elements;  /* of an arena, with padding */
	size_t gradients; /* elements of an arena of gradients, with padding */
	int arenas;
	size_t own;          /* elements whose moments this rank keeps */
	size_t staging;      /* bytes */
	size_t activations;  /* bytes */
	size_t scratch;      /* bytes */
	size_t element_size; /* bytes of an element in the compute type: 4, or 2 for bf16 */
};

struct estimate {
	uint64_t bytes[ESTIMATE_PARTS];
	uint64_t sum;
};

struct estimate estimate_of(const struct estimate_facts *facts);

/* Writes "weights 497.8 MB, moments 995.5 MB, …" without the parts that are 0; returns `out`. */
char *estimate_text(const struct estimate *estimate, char *out, size_t size);

/* Whether the run fits into the device's free memory, which `share` ranks (1: alone) want to the
 * same extent. Returns 0, or -1 with EXIT_USAGE and a message with the sum, the parts, what is
 * free, and what lowers the need. */
int estimate_check(const struct estimate *estimate, uint64_t available, int share, struct err *err);

#endif
