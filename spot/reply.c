/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "spot/reply.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "common/last_words.h"
#include "common/record.h"

static int say(struct spot_notice *notice, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static int say(struct spot_notice *notice, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	*notice = (struct spot_notice) { { 0 }, { 0 } };
	vsnprintf(notice->text, sizeof notice->text, format, args);
	va_end(args);
	last_words_make_printable(notice->text);
	return 1;
}

/* The object in a reply; NULL with `err` if there is none. */
static json_t *read_object(const char *body, size_t size, struct err *err)
{
	json_t *root = record_parse(body, size, JSON_REJECT_DUPLICATES, "the reply", err);
	if (!root || json_is_object(root))
		return root;
	json_decref(root);
	err_set(err, "the reply is no JSON object");
	return NULL;
}

static const char *text_of(const json_t *object, const char *name)
{
	const char *text = json_string_value(json_object_get(object, name));
	return text ? text : "";
}

int spot_reply_action(const char *body, size_t size, struct spot_notice *notice, struct err *err)
{
	json_t *root = read_object(body, size, err);
	if (!root)
		return -1;
	const char *action = text_of(root, "action"), *time = text_of(root, "time");
	int rc = action[0] ? say(notice, "aws: %.40s%s%.40s", action, time[0] ? " at " : "", time)
					   : err_set(err, "the reply has no \"action\"");
	json_decref(root);
	return rc;
}

int spot_reply_rebalance(const char *body, size_t size, struct spot_notice *notice, struct err *err)
{
	json_t *root = read_object(body, size, err);
	if (!root)
		return -1;
	const char *time = text_of(root, "noticeTime");
	int rc = time[0] ? say(notice, "aws: rebalance recommendation of %.40s", time)
					 : err_set(err, "the reply has no \"noticeTime\"");
	json_decref(root);
	return rc;
}

int spot_reply_preempted(const char *body, size_t size, struct spot_notice *notice, struct err *err)
{
	while (size > 0 && strchr(" \t\r\n", body[size - 1]) && body[size - 1])
		size--;
	if (size == 4 && strncmp(body, "TRUE", 4) == 0)
		return say(notice, "gcp: preempted");
	if (size == 5 && strncmp(body, "FALSE", 5) == 0)
		return 0;
	return err_set(err, "the reply is neither TRUE nor FALSE");
}

static bool takes_away(const json_t *event)
{
	static const char *const types[] = { "Preempt", "Terminate", "Redeploy", "Reboot" };
	for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
		if (strcmp(text_of(event, "EventType"), types[i]) == 0)
			return true;
	return false;
}

static bool concerns(const json_t *event, const char *name)
{
	size_t i;
	json_t *resource;
	json_array_foreach(json_object_get(event, "Resources"), i,
		resource) if (json_is_string(resource)
		&& strcmp(json_string_value(resource), name) == 0) return true;
	return false;
}

static int say_event(struct spot_notice *notice, const json_t *event)
{
	const char *when = text_of(event, "NotBefore"), *id = text_of(event, "EventId");
	say(notice, "azure: %.20s%s%.40s", text_of(event, "EventType"), when[0] ? ", not before " : "",
		when);
	/* An identifier that is no such thing is not sent back. */
	if (strlen(id) < sizeof notice->event
		&& strspn(id, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_.")
			== strlen(id))
		snprintf(notice->event, sizeof notice->event, "%s", id);
	return 1;
}

int spot_reply_events(const char *body, size_t size, const char *name, struct spot_notice *notice,
	struct err *err)
{
	json_t *root = read_object(body, size, err), *event;
	size_t i;
	int rc = 0;
	if (!root)
		return -1;
	if (!json_is_array(json_object_get(root, "Events")))
		rc = err_set(err, "the reply has no list of \"Events\"");
	json_array_foreach(json_object_get(root, "Events"), i, event) if (rc == 0 && takes_away(event)
		&& concerns(event, name)) rc = say_event(notice, event);
	json_decref(root);
	return rc;
}

int spot_reply_page(const char *body, size_t size, struct spot_notice *notice, struct err *err)
{
	size_t length = strcspn(body, "\r\n");
	if (size == 0)
		return 0;
	if (length == 0)
		return err_set(err, "the page begins with an empty line");
	return say(notice, "page: %.*s", (int)(length > 100 ? 100 : length), body);
}
