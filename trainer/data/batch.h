/* SPDX-License-Identifier: Apache-2.0 */
/* One microbatch of samples in host memory, as models take it. */
#ifndef MUSTER_BATCH_H
#define MUSTER_BATCH_H

#include <stdint.h>

struct batch {
	int samples;      /* rows; always a full microbatch: missing samples have targets -1 */
	int positions;    /* tokens of a sample; 1 for tables */
	int features;     /* columns of `inputs`, 0 for tokens */
	int32_t *tokens;  /* [samples, positions], NULL for tables */
	float *inputs;    /* [samples, features], NULL for tokens */
	int32_t *targets; /* [samples, positions] for tokens (the next token), [samples] for tables; -1:
						 does not count */
};

#endif
