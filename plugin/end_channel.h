/* SPDX-License-Identifier: Apache-2.0 */
/* How slurmstepd tells srun of the end of a task: srun listens from before the step is made, and
 * looks at what came when it ends. Until then the kernel keeps the connections, in the order in
 * which they came: srun needs no thread for it.
 *
 * Anybody who reaches srun's host can connect: what does not know the secret is passed over. */
#ifndef MUSTER_END_CHANNEL_H
#define MUSTER_END_CHANNEL_H

#include <stdint.h>
#include <sys/types.h>

#include "common/err.h"
#include "plugin/first_end.h"

/* Begins with SLURM, since srun --export=NONE lets nothing else through. PORT:SECRET; port 0:
 * nobody listens. */
#define END_CHANNEL_VARIABLE "SLURM_MUSTER_LAUNCHER"
#define END_CHANNEL_VALUE_SIZE (END_SECRET_SIZE + 8)

/* ---- in srun ---- */

struct end_channel {
	int fd; /* -1: none */
	char secret[END_SECRET_SIZE];
};

/* Listens, on any port where `range` is NULL; else on one from range[0] to range[1], if these have
 * many to spare, and on none if they don't: srun itself needs some, and does not start without.
 * `value` gets what END_CHANNEL_VARIABLE is to say. */
int end_channel_open(struct end_channel *channel, const uint16_t *range,
	char value[END_CHANNEL_VALUE_SIZE], struct err *err);

/* Takes what has come, at most for `seconds`, and closes the channel. */
void end_channel_collect(struct end_channel *channel, double seconds, struct first_end *state);

/* ---- in slurmstepd ---- */

/* Where a step's srun listens. A value. */
struct end_address {
	char host[64]; /* as SLURM_SRUN_COMM_HOST: numeric */
	char port[8];  /* "0": srun does not listen */
	char secret[END_SECRET_SIZE];
};

/* False when one of the two is missing or malformed. */
bool end_address_read(const char *host, const char *value, struct end_address *address);

/* Sends a message as `uid`, within `seconds`. -1 when it was not sent; srun may be gone, or not
 * listen. */
int end_channel_tell(const struct end_address *address, uid_t uid, const char *message, size_t size,
	double seconds);

#endif
