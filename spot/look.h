/* SPDX-License-Identifier: Apache-2.0 */
/* Asks a source whether this node is about to be taken away. */
#ifndef MUSTER_SPOT_LOOK_H
#define MUSTER_SPOT_LOOK_H

#include "launch/spot_source.h"
#include "spot/http.h"
#include "spot/reply.h"

enum look_result { LOOK_FAILED = -1, LOOK_NONE, LOOK_NOTICE, LOOK_STOPPED };

struct look {
	struct http *http;
	const struct spot_source *source;
	char token[500];         /* of AWS; "": none yet */
	char tag[HTTP_TAG_SIZE]; /* Compute Engine's of its last reply */
	char name[100];          /* of this machine in Azure */
	struct http_reply reply;
};

/* One look, with the notice or the error. Compute Engine's lasts until something changes, a minute
 * at most; Azure's first one up to two minutes. */
enum look_result look_once(struct look *look, struct spot_notice *notice, struct err *err);

/* Seconds between two looks, as each cloud asks for. */
double look_pause(const struct look *look);

/* Tells Azure that the machine may be taken now. LOOK_NONE: done, or there is no such thing. */
enum look_result look_acknowledge(struct look *look, const struct spot_notice *notice,
	struct err *err);

#endif
