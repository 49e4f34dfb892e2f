/* SPDX-License-Identifier: Apache-2.0 */
/* The memory that a rank will need on its device, part by part, before anything is allocated: a run
 * that can't fit is refused with the sum and the flags that lower it, not in the middle of its
 * first step. */
#ifndef MUSTER_ESTIMATE_H
#define MUSTER_ESTIMATE_H

#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

enum estimate_part {
	ESTIMATE_WEIGHTS,   /* master weights, fp32 */
	ESTIMATE_COMPUTE,   /* the copy that is computed with, where that has another type */
	ESTIMATE_MOMENTS,   /* both, of what this rank keeps */
	ESTIMATE_GRADIENTS, /* all arenas */
	ESTIMATE_STAGING,   /* pieces of other ranks' gradients, and what NCCL may take */
	ESTIMATE_ACTIVATIONS,
	ESTIMATE_SCRATCH, /* of the operations, with the products' workspace */
	ESTIMATE_PARTS
};

/* What it follows from. */
struct estimate_facts {
	size_t elements;  /* of an arena, with padding */
	size_t gradients; /* of an arena of gradients, and how many of these there are */
	int arenas;
	size_t own;          /* elements whose moments this rank keeps */
	size_t staging;      /* bytes */
	size_t activations;  /* bytes */
	size_t scratch;      /* bytes */
	size_t element_size; /* bytes of an element that is computed with: 4, or 2 for bf16 */
};

struct estimate {
	uint64_t bytes[ESTIMATE_PARTS];
	uint64_t sum;
};

struct estimate estimate_of(const struct estimate_facts *facts);

/* "weights 497.8 MB, moments 995.5 MB, …" without the parts that are 0; returns `out`. */
char *estimate_text(const struct estimate *estimate, char *out, size_t size);

/* Whether it fits into what is free on the device: else EXIT_USAGE with the sum, what is free, the
 * largest parts, and what lowers them. `share` ranks (1: alone) want the same from it. */
int estimate_check(const struct estimate *estimate, uint64_t available, int share, struct err *err);

#endif
