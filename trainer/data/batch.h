/* SPDX-License-Identifier: Apache-2.0 */
/* One microbatch in host memory. */
#ifndef MUSTER_BATCH_H
#define MUSTER_BATCH_H

#include <stdint.h>

struct batch {
	int samples; /* rows that exist; a microbatch is never short: missing samples have targets -1 */
	int positions;    /* tokens of a sample; 1 for tables */
	int features;     /* columns of `inputs`, 0 for tokens */
	int32_t *tokens;  /* [samples, positions], NULL for tables */
	float *inputs;    /* [samples, features], NULL for tokens */
	int32_t *targets; /* [samples, positions] for tokens (the next token), [samples] for tables; -1:
						 not counted */
};

#endif
