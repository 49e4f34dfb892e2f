/* SPDX-License-Identifier: Apache-2.0 */
/* What counts as a notice in the replies of the metadata services. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "spot/reply.h"

typedef int reader(const char *body, size_t size, struct spot_notice *notice, struct err *err);

static struct spot_notice notice;

static void says(reader *read, const char *body, const char *text)
{
	struct err err;
	assert_int_equal(read(body, strlen(body), &notice, &err), 1);
	assert_string_equal(notice.text, text);
}

static void is_none(reader *read, const char *body)
{
	struct err err;
	assert_int_equal(read(body, strlen(body), &notice, &err), 0);
}

static void is_malformed(reader *read, const char *body, const char *why)
{
	struct err err;
	assert_int_equal(read(body, strlen(body), &notice, &err), -1);
	assert_non_null(strstr(err.text, why));
}

static void aws_names_the_action_and_when(void **state)
{
	says(spot_reply_action, "{\"action\":\"terminate\",\"time\":\"2017-09-18T08:22:00Z\"}",
		"aws: terminate at 2017-09-18T08:22:00Z");
	says(spot_reply_action, "{\"action\":\"hibernate\"}", "aws: hibernate");
	says(spot_reply_rebalance, "{\"noticeTime\":\"2020-10-27T08:22:00Z\"}",
		"aws: rebalance recommendation of 2020-10-27T08:22:00Z");
	says(spot_reply_action, "{\"action\":\"stop\\nnotice forged\"}", "aws: stop?notice forged");
}

static void what_is_no_json_object_is_malformed(void **state)
{
	static const char *const bodies[] = { "", "[]", "{", "null", "{\"action\":", "<html>",
		"{\"action\":1}", "{\"action\":\"\"}", "{\"noticeTime\":[]}",
		"{\"action\":\"stop\",\"action\":\"stop\"}" };
	for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++) {
		is_malformed(spot_reply_action, bodies[i], "the reply");
		is_malformed(spot_reply_rebalance, bodies[i], "the reply");
	}
}

static void gcp_says_true_or_false(void **state)
{
	says(spot_reply_preempted, "TRUE", "gcp: preempted");
	says(spot_reply_preempted, "TRUE\r\n", "gcp: preempted");
	is_none(spot_reply_preempted, "FALSE");
	is_none(spot_reply_preempted, "FALSE\n");
	is_malformed(spot_reply_preempted, "", "neither");
	is_malformed(spot_reply_preempted, "true", "neither");
	is_malformed(spot_reply_preempted, "TRUER", "neither");
}

static int vm0(const char *body, size_t size, struct spot_notice *out, struct err *err)
{
	return spot_reply_events(body, size, "vm0", out, err);
}

#define EVENT(id, type, resources) \
	"{\"EventId\":\"" id "\",\"EventType\":\"" type "\",\"Resources\":[" resources \
	"],\"NotBefore\":\"Mon, 19 Sep 2016 18:29:47 GMT\"}"

static void azure_names_the_first_event_that_takes_this_machine(void **state)
{
	is_none(vm0, "{\"DocumentIncarnation\":1,\"Events\":[]}");
	is_none(vm0, "{\"Events\":[" EVENT("a", "Preempt", "\"vm1\",\"vm00\"") "]}");
	is_none(vm0, "{\"Events\":[" EVENT("a", "Freeze", "\"vm0\"") "]}");
	is_none(vm0, "{\"Events\":[1,{},{\"EventType\":\"Preempt\",\"Resources\":\"vm0\"}]}");
	says(vm0,
		"{\"Events\":[" EVENT("a", "Preempt", "\"vm1\"") "," EVENT("b-2", "Terminate",
			"\"vm1\",\"vm0\"") "," EVENT("c", "Preempt", "\"vm0\"") "]}",
		"azure: Terminate, not before Mon, 19 Sep 2016 18:29:47 GMT");
	assert_string_equal(notice.event, "b-2");
	/* An identifier that could end the string that it is sent back in. */
	says(vm0, "{\"Events\":[" EVENT("a\\\"}]", "Reboot", "\"vm0\"") "]}",
		"azure: Reboot, not before Mon, 19 Sep 2016 18:29:47 GMT");
	assert_string_equal(notice.event, "");
	is_malformed(vm0, "{}", "Events");
	is_malformed(vm0, "{\"Events\":{}}", "Events");
}

static void a_page_says_its_first_line(void **state)
{
	is_none(spot_reply_page, "");
	says(spot_reply_page, "rack 7\nis moved", "page: rack 7");
	says(spot_reply_page, "rack\t7", "page: rack?7");
	is_malformed(spot_reply_page, "\nrack 7", "empty line");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(aws_names_the_action_and_when),
		cmocka_unit_test(what_is_no_json_object_is_malformed),
		cmocka_unit_test(gcp_says_true_or_false),
		cmocka_unit_test(azure_names_the_first_event_that_takes_this_machine),
		cmocka_unit_test(a_page_says_its_first_line),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
