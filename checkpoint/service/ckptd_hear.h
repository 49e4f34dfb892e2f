/* SPDX-License-Identifier: Apache-2.0 */
/* Part 0's ear: the TCP socket on which the services of the other parts tell that theirs are
 * durable. */
#ifndef MUSTER_CKPTD_HEAR_H
#define MUSTER_CKPTD_HEAR_H

#include "checkpoint/protocol/ckptd_polls.h"
#include "checkpoint/protocol/ckptd_proto.h"
#include "common/err.h"

/* A part of `step` was told, and its text checked: `text` is the receiver's, or NULL with a fault.
 * -1: he can't take it. */
typedef int ckptd_hear_part(void *arg, int64_t step, int part, char *text, size_t size,
	const struct err *fault);

/* No part of `step` or a later one will be told. */
typedef void ckptd_hear_left(void *arg, int64_t step, int part);

struct ckptd_hear;

/* Who is told what is heard. */
struct ckptd_hear_news {
	ckptd_hear_part *part;
	ckptd_hear_left *left;
	void *arg;
};

/* Listens as `attach` says, which is borrowed. A port that is not free is replaced by another, and
 * that is logged. */
struct ckptd_hear *ckptd_hear_open(const struct ckptd_attach *attach,
	const struct ckptd_hear_news *news, struct err *err);
int ckptd_hear_port(const struct ckptd_hear *hear);

void ckptd_hear_poll(const struct ckptd_hear *hear, struct ckptd_polls *polls);

/* Does what can be done without waiting. */
void ckptd_hear_step(struct ckptd_hear *hear);

/* Tells all who are connected that a save is over. */
void ckptd_hear_decided(struct ckptd_hear *hear, int64_t step, bool committed);

/* NULL is allowed. */
void ckptd_hear_close(struct ckptd_hear *hear);

#endif
