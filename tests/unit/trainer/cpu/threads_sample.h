/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of threads to try: all, or 1, 2, 5, 11 where a run takes samples: with a
 * MUSTER_TEST_SHARE that is not 0. */
#ifndef MUSTER_TEST_THREADS_SAMPLE_H
#define MUSTER_TEST_THREADS_SAMPLE_H

#include <stdlib.h>

static inline int threads_sample_next(int threads)
{
	const char *share = getenv("MUSTER_TEST_SHARE");
	return share && atoi(share) > 0 ? 2 * threads + (threads > 1) : threads + 1;
}

#endif
