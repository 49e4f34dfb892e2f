/* SPDX-License-Identifier: Apache-2.0 */
/* The public names of common/notice.h. */
#include "common/notice.h"

#include "lib/muster_private.h"

int muster_notice_begin(void)
{
	struct err err;
	return notice_take(&err) < 0 ? muster_failed(&err) : MUSTER_OK;
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
