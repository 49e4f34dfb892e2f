/* SPDX-License-Identifier: Apache-2.0 */
/* A stand-in of cuDNN's attention: ours, in memory of its own. Linked instead of
 * trainer/cuda/attention_cudnn. */
#ifndef MUSTER_TESTS_FAKE_ATTENTION_H
#define MUSTER_TESTS_FAKE_ATTENTION_H

#include <stdbool.h>

/* What it is to do, and what it has seen. */
struct fake_attention {
	bool absent;           /* this node has none */
	bool fails;            /* the forward pass does */
	bool unsteady;         /* each second backward pass comes to other bits */
	int alive;             /* of attention_cudnn_create */
	int forward, backward; /* passes */
};

extern struct fake_attention fake_attention;

#endif
