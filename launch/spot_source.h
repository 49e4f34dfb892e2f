/* SPDX-License-Identifier: Apache-2.0 */
/* Who tells that this node is about to be taken away: a cloud's metadata service, or a page of the
 * site's own. */
#ifndef MUSTER_SPOT_SOURCE_H
#define MUSTER_SPOT_SOURCE_H

#include "common/err.h"

#define SPOT_SOURCE_VARIABLE "MUSTER_NOTICE" /* where no other source is given */
#define SPOT_BASE_MAX 255                    /* bytes */

enum spot_cloud { SPOT_OFF, SPOT_AWS, SPOT_GCP, SPOT_AZURE, SPOT_PAGE };

struct spot_source {
	enum spot_cloud cloud;
	char base[SPOT_BASE_MAX + 1]; /* http://… without a slash at its end; of a page, all of it */
};

/* Reads "off", "aws", "gcp", "azure", one of these three with "=URL" for a service that is
 * elsewhere, "http…" for a page, or "auto" (also NULL and ""), which is the cloud that this machine
 * is in, or off. Status EXIT_USAGE. */
int spot_source_read(const char *text, struct spot_source *source, struct err *err);

/* The cloud that a folder such as /sys/class/dmi/id names; SPOT_OFF for another machine. */
enum spot_cloud spot_cloud_of(const char *dmi);

/* "aws", "gcp", "azure", "page" or "off". */
const char *spot_cloud_name(enum spot_cloud cloud);

#endif
