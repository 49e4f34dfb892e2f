/* SPDX-License-Identifier: Apache-2.0 */
/* The requests; reply.h names their sources. */
#include "config.h"

#include "spot/look.h"

#include <stdio.h>
#include <string.h>

#define SECONDS 5.0        /* of a request that is answered at once */
#define CHANGE_SECONDS 60  /* for Compute Engine to wait for a change */
#define FIRST_SECONDS 150. /* Azure's first reply */
#define AWS_TOKEN "/latest/api/token"
#define AWS_ACTION "/latest/meta-data/spot/instance-action"
#define AWS_REBALANCE "/latest/meta-data/events/recommendations/rebalance"
#define AWS_LIFETIME "X-aws-ec2-metadata-token-ttl-seconds: 21600"
#define GCP_PREEMPTED "/computeMetadata/v1/instance/preempted"
#define AZURE_NAME "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
#define AZURE_EVENTS "/metadata/scheduledevents?api-version=2020-07-01"

typedef int reader(const char *body, size_t size, struct spot_notice *notice, struct err *err);

/* LOOK_NONE: there is a reply, of any status. */
static enum look_result ask(struct look *look, const char *method, const char *path,
	const char *header, const char *body, double seconds, struct err *err)
{
	struct http_request request = { .method = method, .body = body, .seconds = seconds };
	snprintf(request.url, sizeof request.url, "%s%s", look->source->base, path);
	snprintf(request.header, sizeof request.header, "%s", header);
	int rc = http_send(look->http, &request, &look->reply, err);
	if (rc < 0)
		err_prefix(err, "%s", request.url);
	return rc < 0 ? LOOK_FAILED : rc == 0 ? LOOK_STOPPED : LOOK_NONE;
}

/* What the reply says; `none`: the status of a reply without a notice. */
static enum look_result read_reply(struct look *look, long none, reader *read,
	struct spot_notice *notice, struct err *err)
{
	if (look->reply.status == none)
		return LOOK_NONE;
	if (look->reply.status != 200)
		return err_set(err, "the reply has status %ld", look->reply.status);
	int rc = read(look->reply.body, look->reply.size, notice, err);
	return rc < 0 ? LOOK_FAILED : rc > 0 ? LOOK_NOTICE : LOOK_NONE;
}

/* ---- AWS ---- */

static enum look_result take_token(struct look *look, struct err *err)
{
	enum look_result rc = ask(look, "PUT", AWS_TOKEN, AWS_LIFETIME, NULL, SECONDS, err);
	if (rc != LOOK_NONE)
		return rc;
	const char *token = look->reply.body;
	size_t length = strlen(token);
	if (look->reply.status != 200)
		return err_set(err, "the request for a token was refused with status %ld",
			look->reply.status);
	if (length == 0 || length != look->reply.size || length >= sizeof look->token
		|| strpbrk(token, " \t\r\n"))
		return err_set(err, "the reply is no token");
	memcpy(look->token, token, length + 1);
	return LOOK_NONE;
}

/* A token that is refused has expired. */
static enum look_result look_at_aws(struct look *look, const char *path, reader *read,
	struct spot_notice *notice, struct err *err)
{
	char header[sizeof look->token + 30];
	for (int try = 0; try < 2; try++) {
		enum look_result rc = look->token[0] ? LOOK_NONE : take_token(look, err);
		if (rc != LOOK_NONE)
			return rc;
		snprintf(header, sizeof header, "X-aws-ec2-metadata-token: %s", look->token);
		if ((rc = ask(look, "GET", path, header, NULL, SECONDS, err)) != LOOK_NONE)
			return rc;
		if (look->reply.status != 401)
			break;
		look->token[0] = '\0';
	}
	return read_reply(look, 404, read, notice, err);
}

static enum look_result look_aws(struct look *look, struct spot_notice *notice, struct err *err)
{
	enum look_result rc = look_at_aws(look, AWS_ACTION, spot_reply_action, notice, err);
	return rc == LOOK_NONE ? look_at_aws(look, AWS_REBALANCE, spot_reply_rebalance, notice, err)
						   : rc;
}

/* ---- the others ---- */

static enum look_result look_gcp(struct look *look, struct spot_notice *notice, struct err *err)
{
	char path[300] = GCP_PREEMPTED;
	if (look->tag[0])
		snprintf(path, sizeof path, "%s?wait_for_change=true&timeout_sec=%d&last_etag=%s",
			GCP_PREEMPTED, CHANGE_SECONDS, look->tag);
	enum look_result rc =
		ask(look, "GET", path, "Metadata-Flavor: Google", NULL, CHANGE_SECONDS + SECONDS, err);
	if (rc == LOOK_NONE)
		rc = read_reply(look, 0, spot_reply_preempted, notice, err);
	snprintf(look->tag, sizeof look->tag, "%s", rc == LOOK_NONE ? look->reply.tag : "");
	return rc;
}

static enum look_result take_name(struct look *look, struct err *err)
{
	enum look_result rc = ask(look, "GET", AZURE_NAME, "Metadata: true", NULL, SECONDS, err);
	if (rc != LOOK_NONE)
		return rc;
	size_t length = strcspn(look->reply.body, "\r\n");
	if (look->reply.status != 200 || length == 0 || length >= sizeof look->name)
		return err_set(err, "the reply has no name of this machine (status %ld)",
			look->reply.status);
	snprintf(look->name, sizeof look->name, "%.*s", (int)length, look->reply.body);
	return LOOK_NONE;
}

static int read_events(struct look *look, struct spot_notice *notice, struct err *err)
{
	if (look->reply.status != 200)
		return err_set(err, "the reply has status %ld", look->reply.status);
	return spot_reply_events(look->reply.body, look->reply.size, look->name, notice, err);
}

static enum look_result look_azure(struct look *look, struct spot_notice *notice, struct err *err)
{
	enum look_result rc = look->name[0] ? LOOK_NONE : take_name(look, err);
	if (rc == LOOK_NONE)
		rc = ask(look, "GET", AZURE_EVENTS, "Metadata: true", NULL, FIRST_SECONDS, err);
	return rc == LOOK_NONE ? (enum look_result)read_events(look, notice, err) : rc;
}

static enum look_result look_page(struct look *look, struct spot_notice *notice, struct err *err)
{
	enum look_result rc = ask(look, "GET", "", "", NULL, SECONDS, err);
	if (rc != LOOK_NONE || look->reply.status == 204)
		return rc;
	return read_reply(look, 404, spot_reply_page, notice, err);
}

enum look_result look_once(struct look *look, struct spot_notice *notice, struct err *err)
{
	switch (look->source->cloud) {
	case SPOT_AWS: return look_aws(look, notice, err);
	case SPOT_GCP: return look_gcp(look, notice, err);
	case SPOT_AZURE: return look_azure(look, notice, err);
	case SPOT_PAGE: return look_page(look, notice, err);
	default: return LOOK_STOPPED;
	}
}

double look_pause(const struct look *look)
{
	return look->source->cloud == SPOT_AWS ? 5 : look->source->cloud == SPOT_PAGE ? 2 : 1;
}

enum look_result look_acknowledge(struct look *look, const struct spot_notice *notice,
	struct err *err)
{
	char body[SPOT_EVENT_SIZE + 60];
	if (look->source->cloud != SPOT_AZURE || !notice->event[0])
		return LOOK_NONE;
	snprintf(body, sizeof body, "{\"StartRequests\":[{\"EventId\":\"%s\"}]}", notice->event);
	enum look_result rc = ask(look, "POST", AZURE_EVENTS, "Metadata: true", body, SECONDS, err);
	if (rc != LOOK_NONE || look->reply.status == 200)
		return rc;
	return err_set(err, "the reply has status %ld", look->reply.status);
}
