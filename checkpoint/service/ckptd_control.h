/* SPDX-License-Identifier: Apache-2.0 */
/* The client's side of FINISH and STATUS, for the job's epilog, for a step that is begun anew, and
 * for administrators. */
#ifndef MUSTER_CKPTD_CONTROL_H
#define MUSTER_CKPTD_CONTROL_H

#include "checkpoint/protocol/ckptd_proto.h"
#include "common/err.h"

/* Asks the service at `path` for its STATE, which the caller releases. -1 with EXIT_LOST when none
 * answers. */
int ckptd_control_status(const char *path, struct ckptd_message *state, struct err *err);

/* Waits until the service has no client and nothing of a former one to write, for at most
 * `seconds`. -1 with EXIT_LOST when that is too short, or none answers. */
int ckptd_control_settle(const char *path, double seconds, struct err *err);

/* Tells the service to finish within `seconds`, and waits until it is gone. Returns 1 with a
 * FINISHED (released by the caller) that lists what was lost; 0 when there was no service; -1 when
 * it did not answer (then it is killed) or can't be asked. */
int ckptd_control_finish(const char *path, double seconds, struct ckptd_message *finished,
	struct err *err);

#endif
