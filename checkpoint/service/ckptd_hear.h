/* SPDX-License-Identifier: Apache-2.0 */
/* Part 0's receiver: the TCP socket on which the services of the other parts report that their
 * parts are durable. */
#ifndef MUSTER_CKPTD_HEAR_H
#define MUSTER_CKPTD_HEAR_H

#include "checkpoint/protocol/ckptd_polls.h"
#include "checkpoint/protocol/ckptd_proto.h"
#include "common/err.h"

/* Called when a part of `step` was reported and its text checked: the callee owns `text`, or it is
 * NULL and `fault` says why. Returns -1 when it can't be noted. */
typedef int ckptd_hear_part(void *arg, int64_t step, int part, char *text, size_t size,
	const struct err *fault);

/* Called when a part will not come for `step` or any later one. */
typedef void ckptd_hear_left(void *arg, int64_t step, int part);

struct ckptd_hear;

/* The callbacks. */
struct ckptd_hear_news {
	ckptd_hear_part *part;
	ckptd_hear_left *left;
	void *arg;
};

/* Listens at the host and port of `attach`, which is borrowed. If the port is taken, it uses
 * another and logs that as an error. NULL with err set on an error. */
struct ckptd_hear *ckptd_hear_open(const struct ckptd_attach *attach,
	const struct ckptd_hear_news *news, struct err *err);
int ckptd_hear_port(const struct ckptd_hear *hear);

void ckptd_hear_poll(const struct ckptd_hear *hear, struct ckptd_polls *polls);

/* Does whatever can be done without waiting. */
void ckptd_hear_step(struct ckptd_hear *hear);

/* Tells all connected parts that a save is over. */
void ckptd_hear_decided(struct ckptd_hear *hear, int64_t step, bool committed);

/* NULL is allowed. */
void ckptd_hear_close(struct ckptd_hear *hear);

#endif
