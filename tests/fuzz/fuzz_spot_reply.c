/* SPDX-License-Identifier: Apache-2.0 */
/* libFuzzer harness of the metadata services' replies: whatever one says, a notice is one line of
 * printable ASCII, and the event that is sent back is no more than an identifier. */
#include <stdlib.h>
#include <string.h>

#include "spot/reply.h"

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size);

static void check(int rc, const struct spot_notice *notice)
{
	if (rc < -1 || rc > 1)
		abort();
	if (rc < 1)
		return;
	if (!notice->text[0] || !memchr(notice->text, 0, sizeof notice->text)
		|| !memchr(notice->event, 0, sizeof notice->event) || strpbrk(notice->event, "\"\\ "))
		abort();
	for (const char *c = notice->text; *c; c++)
		if (*c < ' ' || *c > '~')
			abort();
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
	struct spot_notice notice;
	struct err err;
	char *body = malloc(size + 1);
	memcpy(body, bytes, size);
	body[size] = '\0';
	check(spot_reply_action(body, size, &notice, &err), &notice);
	check(spot_reply_rebalance(body, size, &notice, &err), &notice);
	check(spot_reply_preempted(body, size, &notice, &err), &notice);
	check(spot_reply_events(body, size, "vm0", &notice, &err), &notice);
	check(spot_reply_page(body, size, &notice, &err), &notice);
	free(body);
	return 0;
}
