/* SPDX-License-Identifier: Apache-2.0 */
/* The public names of common/notice.h. */
#include "common/notice.h"

#include "lib/muster_private.h"

static int begin(bool interrupt)
{
	struct err err;
	return notice_take(interrupt, &err) < 0 ? muster_failed(&err) : MUSTER_OK;
}

int muster_notice_begin(void)
{
	return begin(true);
}

int muster_notice_begin_beside(void)
{
	return begin(false);
}

void muster_notice_record(int signal)
{
	notice_record(signal);
}

int muster_notice(void)
{
	return notice_signal();
}

int muster_notice_fd(void)
{
	return notice_fd();
}

const char *muster_notice_name(int signal)
{
	return notice_name(signal);
}
