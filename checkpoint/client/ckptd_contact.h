/* SPDX-License-Identifier: Apache-2.0 */
/* A client's contact to a service: to the node's, or to one of its own; and to the next one, once
 * that is lost. Used by one thread at a time. */
#ifndef MUSTER_CKPTD_CONTACT_H
#define MUSTER_CKPTD_CONTACT_H

#include "checkpoint/client/ckptd_plan.h"
#include "checkpoint/client/ckptd_start.h"
#include "checkpoint/protocol/ckptd_proto.h"
#include "checkpoint/protocol/ckptd_tcp.h"
#include "common/err.h"

struct ckptd_contact {
	const struct ckptd_plan *plan;    /* borrowed */
	struct ckptd_message attach;      /* what every service is told at first */
	char *path;                       /* of the directory, in UTF-8 */
	char secret[33];                  /* of the other parts' services; 32 digits */
	char address[CKPTD_ADDRESS_SIZE]; /* where they report to; "" with one part */
	struct ckptd_link link;
	int64_t service; /* pid of the one that was attached to last, as it says itself */
};

/* Prepares what a service is told of the plan, which is borrowed. Nothing is connected yet. */
int ckptd_contact_init(struct ckptd_contact *contact, const struct ckptd_plan *plan,
	struct err *err);

/* Finds the node's service or starts one, and attaches to it, within the plan's timeout each. One
 * that was lost before does not write any more when it returns 0. On an error, EXIT_LOST mostly, it
 * may be called again. */
int ckptd_contact_find(struct ckptd_contact *contact, struct err *err);

/* The connection broke, of which `why` is the error: `said` tells what became of the process. */
void ckptd_contact_lose(struct ckptd_contact *contact, const struct err *why, struct err *said);

/* Leaves the service, which finishes what it was handed. Also after an init that failed. */
void ckptd_contact_release(struct ckptd_contact *contact);

#endif
