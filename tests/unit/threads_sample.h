/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of threads to try: all, or where a run takes samples (MUSTER_TEST_SHARE) 1, 2, 3, 5, 8, 12. */
#ifndef MUSTER_TEST_THREADS_SAMPLE_H
#define MUSTER_TEST_THREADS_SAMPLE_H

#include <stdlib.h>

static inline int threads_sample_next(int threads)
{
	return getenv("MUSTER_TEST_SHARE") ? threads + (threads + 1) / 2 : threads + 1;
}

#endif
