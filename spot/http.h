/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to a metadata service, by libcurl: no proxy, no redirect, no more than 64 KiB, and never
 * longer than asked for. */
#ifndef MUSTER_SPOT_HTTP_H
#define MUSTER_SPOT_HTTP_H

#include <stdbool.h>
#include <stddef.h>

#include "common/err.h"

#define HTTP_BODY_MOST ((size_t)64 << 10)
#define HTTP_TAG_SIZE 100

struct http_request {
	const char *method; /* GET, PUT or POST */
	char url[512];
	char header[600]; /* "NAME: VALUE"; "" for none */
	const char *body; /* for POST and PUT; NULL for none */
	double seconds;
};

struct http_reply {
	long status;
	char body[HTTP_BODY_MOST + 1]; /* ends with '\0' */
	size_t size;
	char tag[HTTP_TAG_SIZE]; /* the header ETag; "" for none */
};

struct http;

/* `stop`: a descriptor that ends a request when it is readable or closed; -1: none. NULL on error.
 */
struct http *http_open(int stop, struct err *err);
void http_close(struct http *http);

/* Returns 1 with *reply, 0 if `stop` has ended it, -1 if there was no whole reply. */
int http_send(struct http *http, const struct http_request *request, struct http_reply *reply,
	struct err *err);

/* Waits; returns false once `stop` is readable or closed. */
bool http_pause(struct http *http, double seconds);

#endif
