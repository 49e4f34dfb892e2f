/* SPDX-License-Identifier: Apache-2.0 */
/* For a test program whose faults are meant: what would be logged is dropped. */
#ifndef MUSTER_TEST_QUIET_H
#define MUSTER_TEST_QUIET_H

#include "common/log.h"

static void quiet_drop(void *arg, enum log_level level, const char *line)
{
	(void)arg, (void)level, (void)line;
}

static inline void quiet_log(void)
{
	log_set_writer(quiet_drop, NULL);
}

#endif
