/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "spot/http.h"

#include <curl/curl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct http {
	CURLM *all;
	CURL *one;
	int stop;
};

struct http *http_open(int stop, struct err *err)
{
	struct http *http = calloc(1, sizeof *http);
	if (http && curl_global_init(CURL_GLOBAL_ALL) == CURLE_OK) {
		*http = (struct http) { curl_multi_init(), curl_easy_init(), stop };
		if (http->all && http->one)
			return http;
	}
	http_close(http);
	err_set(err, "couldn't start libcurl");
	return NULL;
}

void http_close(struct http *http)
{
	if (!http)
		return;
	curl_easy_cleanup(http->one);
	curl_multi_cleanup(http->all);
	free(http);
}

/* Less than all of it ends the request. */
static size_t take_body(char *data, size_t one, size_t size, void *arg)
{
	struct http_reply *reply = arg;
	if (one * size > HTTP_BODY_MOST - reply->size)
		return 0;
	memcpy(reply->body + reply->size, data, one * size);
	reply->size += one * size;
	reply->body[reply->size] = '\0';
	return one * size;
}

static size_t take_header(char *data, size_t one, size_t size, void *arg)
{
	static const char name[] = "ETag:";
	struct http_reply *reply = arg;
	size_t length = one * size, skip = sizeof name - 1;
	if (length <= skip || strncasecmp(data, name, skip) != 0)
		return length;
	while (skip < length && data[skip] == ' ')
		skip++;
	snprintf(reply->tag, sizeof reply->tag, "%.*s", (int)(length - skip), data + skip);
	/* Only what a URL may hold as it is. */
	reply->tag[strspn(reply->tag,
		"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_")] = '\0';
	return length;
}

static void describe(CURL *curl, const struct http_request *request, struct http_reply *reply,
	struct curl_slist *headers)
{
	curl_easy_reset(curl);
	curl_easy_setopt(curl, CURLOPT_URL, request->url);
	curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, request->method);
	if (strcmp(request->method, "GET") != 0)
		curl_easy_setopt(curl, CURLOPT_POSTFIELDS, request->body ? request->body : "");
	curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
	curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)(request->seconds * 1000));
	curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, 2000L);
	curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
	/* A service of this machine's own; a proxy would ask that of another machine. */
	curl_easy_setopt(curl, CURLOPT_PROXY, "");
	curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_body);
	curl_easy_setopt(curl, CURLOPT_WRITEDATA, reply);
	curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, take_header);
	curl_easy_setopt(curl, CURLOPT_HEADERDATA, reply);
}

/* Until the request has ended, or has to: 1, 0 or -1, as http_send. */
static int perform(struct http *http, CURLcode *result, struct err *err)
{
	struct curl_waitfd stop = { http->stop, CURL_WAIT_POLLIN, 0 };
	int running = 1, left;
	for (;;) {
		CURLMcode code = curl_multi_perform(http->all, &running);
		if (code != CURLM_OK)
			return err_set(err, "%s", curl_multi_strerror(code));
		if (!running)
			break;
		code = curl_multi_poll(http->all, &stop, http->stop >= 0, 1000, NULL);
		if (code != CURLM_OK)
			return err_set(err, "%s", curl_multi_strerror(code));
		if (stop.revents)
			return 0;
	}
	const CURLMsg *message = curl_multi_info_read(http->all, &left);
	*result = message ? message->data.result : CURLE_RECV_ERROR;
	return 1;
}

int http_send(struct http *http, const struct http_request *request, struct http_reply *reply,
	struct err *err)
{
	struct curl_slist *headers =
		request->header[0] ? curl_slist_append(NULL, request->header) : NULL;
	CURLcode result = CURLE_OK;
	reply->status = 0;
	reply->size = 0;
	reply->body[0] = reply->tag[0] = '\0';
	describe(http->one, request, reply, headers);
	curl_multi_add_handle(http->all, http->one);
	int rc = perform(http, &result, err);
	curl_easy_getinfo(http->one, CURLINFO_RESPONSE_CODE, &reply->status);
	curl_multi_remove_handle(http->all, http->one);
	curl_slist_free_all(headers);
	if (rc <= 0 || result == CURLE_OK)
		return rc;
	return err_set(err, "%s",
		result == CURLE_WRITE_ERROR ? "the reply is longer than 64 KiB"
									: curl_easy_strerror(result));
}

bool http_pause(struct http *http, double seconds)
{
	struct pollfd stop = { http->stop, POLLIN, 0 };
	return poll(&stop, 1, (int)(seconds * 1000)) <= 0;
}
