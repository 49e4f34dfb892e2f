/* SPDX-License-Identifier: Apache-2.0 */
/* Seconds after which what a test waits for is taken to hang: much longer than a disk may stall,
 * and than a service may wait for a processor that nobody else wants. They are as many times longer
 * as this machine is slower than two quiet cores (MUSTER_PATIENCE, which tests/run.sh measures). */
#ifndef MUSTER_TEST_HANG_H
#define MUSTER_TEST_HANG_H

#include <stdlib.h>

#define HANG_SECONDS hang_seconds()
/* How many times slower. A deadline that a test lets pass is as many times longer, so that nobody
 * meets it who only waits for a processor. */
#define SLOWER (HANG_SECONDS / 120.0)

static inline int hang_seconds(void)
{
	const char *patience = getenv("MUSTER_PATIENCE");
	return 40 * (patience ? atoi(patience) : 3);
}

#endif
