/* SPDX-License-Identifier: Apache-2.0 */
/* What the replies of the metadata services say. Pure functions of text that may hold anything.
 * Sources: "Spot Instance interruption notices" and "EC2 instance rebalance recommendations" in the
 * EC2 User Guide; "Create and use Spot VMs" of Compute Engine; "Scheduled Events for Linux VMs" of
 * Azure. */
#ifndef MUSTER_SPOT_REPLY_H
#define MUSTER_SPOT_REPLY_H

#include <stddef.h>

#include "common/err.h"

#define SPOT_TEXT_SIZE 160
#define SPOT_EVENT_SIZE 100

/* A notice: a line of printable ASCII, and for Azure the event that may be acknowledged. */
struct spot_notice {
	char text[SPOT_TEXT_SIZE];
	char event[SPOT_EVENT_SIZE];
};

/* All return 1 with *notice, 0 where the reply says that nothing comes, -1 where it is malformed.
 * `body` ends with '\0', which is not counted in `size`. */

/* AWS's spot/instance-action: {"action":"terminate","time":"2017-09-18T08:22:00Z"} */
int spot_reply_action(const char *body, size_t size, struct spot_notice *notice, struct err *err);

/* AWS's events/recommendations/rebalance: {"noticeTime":"2020-10-27T08:22:00Z"} */
int spot_reply_rebalance(const char *body, size_t size, struct spot_notice *notice,
	struct err *err);

/* Compute Engine's instance/preempted: TRUE or FALSE */
int spot_reply_preempted(const char *body, size_t size, struct spot_notice *notice,
	struct err *err);

/* Azure's scheduledevents, for the machine `name`. Events that take the machine away count
 * (Preempt, Terminate, Redeploy, Reboot), and Freeze, which pauses it, does not. */
int spot_reply_events(const char *body, size_t size, const char *name, struct spot_notice *notice,
	struct err *err);

/* A page of the site's own: its first line; an empty one is no notice. */
int spot_reply_page(const char *body, size_t size, struct spot_notice *notice, struct err *err);

#endif
