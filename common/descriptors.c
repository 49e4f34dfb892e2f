/* SPDX-License-Identifier: Apache-2.0 */
/* Nearly every system starts processes with a soft limit of 1,024, because select() can't handle
 * more. Nothing here calls select(). */
#include "common/descriptors.h"

#include <stdint.h>
#include <sys/resource.h>

void descriptors_raise(void)
{
	struct rlimit limit;
	if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur == limit.rlim_max)
		return;
	limit.rlim_cur = limit.rlim_max;
	(void)setrlimit(RLIMIT_NOFILE, &limit);
}

size_t descriptors_for_connections(void)
{
	struct rlimit limit;
	return getrlimit(RLIMIT_NOFILE, &limit) < 0 ? SIZE_MAX : limit.rlim_cur - limit.rlim_cur / 4;
}
