/* SPDX-License-Identifier: Apache-2.0 */
/* How slurmstepd tells srun, and a muster-run above it, about the end of a task. srun listens from
 * before the step is made, and reads the messages when the step ends. Until then the kernel keeps
 * the connections in order of arrival, so srun needs no thread for them.
 *
 * muster-run listens all the time, and each node's slurmstepd holds a connection to it while the
 * step runs: so it learns of a node that is gone, whatever the ranks notice.
 *
 * Anybody who reaches srun's host can connect: messages without the secret are ignored. */
#ifndef MUSTER_END_CHANNEL_H
#define MUSTER_END_CHANNEL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/clock.h"
#include "common/err.h"
#include "plugin/first_end.h"

/* Its name begins with SLURM, since srun --export=NONE passes nothing else on. PORT:SECRET; port 0:
 * srun does not listen. */
#define END_CHANNEL_VARIABLE "SLURM_MUSTER_LAUNCHER"
/* The same for the muster-run that has started srun, on the same host. */
#define END_CHANNEL_RUN "SLURM_MUSTER_RUN"
#define END_CHANNEL_VALUE_SIZE (END_SECRET_SIZE + 8)

/* ---- in srun and muster-run ---- */

struct end_channel {
	int fd; /* -1: none */
	char secret[END_SECRET_SIZE];
};

/* Listens on any port if `range` is NULL. Otherwise listens on one from range[0] to range[1] if
 * many of these are free, and on none if not: srun itself needs some ports, and does not start
 * without them. `value` gets the value for END_CHANNEL_VARIABLE. */
int end_channel_open(struct end_channel *channel, const uint16_t *range,
	char value[END_CHANNEL_VALUE_SIZE], struct err *err);

/* For srun's line: takes the messages that have arrived, for at most `seconds`, and closes the
 * channel. Only who has begun a message is waited for, and for no more than half of that time. */
void end_channel_collect(struct end_channel *channel, double seconds, struct first_end *state);

/* ---- in muster-run ---- */

#define END_VISITORS 64

/* Connections that have not said all yet. Start with zeros. */
struct end_visitors {
	struct end_visitor {
		int fd;
		size_t used;
		char bytes[END_MESSAGE_MAX + 1];
		bool done;
		struct deadline until;
	} all[END_VISITORS];
	int count;
};

/* Takes a message; *report is undefined for END_RUNNING. True if it takes the connection over, too,
 * which otherwise is closed. */
typedef bool end_channel_heard(void *arg, enum end_message kind, const struct task_report *report,
	int fd);

/* Takes what has arrived, without waiting. Returns how many connections have not said all yet: call
 * it again soon. */
int end_channel_hear(const struct end_channel *channel, struct end_visitors *visitors,
	end_channel_heard *heard, void *arg);

void end_channel_close(struct end_channel *channel, struct end_visitors *visitors);

/* ---- in slurmstepd ---- */

/* Where a step's srun listens. A value. */
struct end_address {
	char host[64]; /* as in SLURM_SRUN_COMM_HOST: numeric */
	char port[8];  /* "0": srun does not listen */
	char secret[END_SECRET_SIZE];
};

/* False if one of the two is missing or malformed. */
bool end_address_read(const char *host, const char *value, struct end_address *address);

/* Sends a message as `uid`, within `seconds`. -1 if it was not sent: srun may be gone or not
 * listen. */
int end_channel_tell(const struct end_address *address, uid_t uid, const char *message, size_t size,
	double seconds);

/* The same, but the connection stays: it ends with this process, and breaks with its node. Returns
 * its descriptor, or -1. */
int end_channel_hold(const struct end_address *address, uid_t uid, const char *message, size_t size,
	double seconds);

#endif
