/* SPDX-License-Identifier: Apache-2.0 */
/* A client's contact with its service: the node's, or one of its own, and with the next one when
 * that is lost. Used by one thread at a time. */
#ifndef MUSTER_CKPTD_CONTACT_H
#define MUSTER_CKPTD_CONTACT_H

#include "checkpoint/client/ckptd_plan.h"
#include "checkpoint/client/ckptd_start.h"
#include "checkpoint/protocol/ckptd_proto.h"
#include "checkpoint/protocol/ckptd_tcp.h"
#include "common/err.h"

struct ckptd_contact {
	const struct ckptd_plan *plan; /* borrowed */
	struct ckptd_message attach;   /* the first message to each service */
	char *path;                    /* of the directory, in UTF-8; for messages */
	char *host, *first;            /* copies of the plan's, for the next service too */
	char secret[33]; /* authenticates the services of the other parts; 32 hexadecimal digits */
	char address[CKPTD_ADDRESS_SIZE]; /* where those report to; "" with one part */
	struct ckptd_link link;
	int64_t service; /* pid that the last attached service gave for itself */
};

/* Prepares the first message from `plan`, which is borrowed. Does not connect. */
int ckptd_contact_init(struct ckptd_contact *contact, const struct ckptd_plan *plan,
	struct err *err);

/* Finds the node's service or starts one, and attaches to it; each takes at most the plan's
 * timeout. When it returns 0, the service that was lost before has stopped writing. On an error,
 * mostly EXIT_LOST, it may be called again. */
int ckptd_contact_find(struct ckptd_contact *contact, struct err *err);

/* Call it when the connection broke with the error `why`: sets `said` to what became of the
 * process. */
void ckptd_contact_lose(struct ckptd_contact *contact, const struct err *why, struct err *said);

/* Leaves the service, which finishes what was handed over to it. May also be called after a failed
 * init. */
void ckptd_contact_release(struct ckptd_contact *contact);

#endif
