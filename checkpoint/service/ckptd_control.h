/* SPDX-License-Identifier: Apache-2.0 */
/* The other side of FINISH and STATUS: the job's epilog, and people who look. */
#ifndef MUSTER_CKPTD_CONTROL_H
#define MUSTER_CKPTD_CONTROL_H

#include "checkpoint/protocol/ckptd_proto.h"
#include "common/err.h"

/* What the service at `path` holds: a STATE, to be released by the caller. EXIT_LOST: none answers.
 */
int ckptd_control_status(const char *path, struct ckptd_message *state, struct err *err);

/* Has the service finish within `seconds` and waits until it is gone. Returns 1 with a FINISHED
 * (the caller's to release) that lists what was lost; 0 when no service was there; -1 when it did
 * not answer (it is killed then) or can't be asked. */
int ckptd_control_finish(const char *path, double seconds, struct ckptd_message *finished,
	struct err *err);

#endif
