/* SPDX-License-Identifier: Apache-2.0 */
/* Nearly every system starts processes with a soft limit of 1,024, because select() can't handle
 * more. Nothing here calls select(). */
#include "common/descriptors.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* What a marked descriptor was open for. Once it is closed, its number may be the program's, which
 * has another inode: nobody need take the mark away. Descriptors above the table stay open. */
static struct {
	dev_t device;
	_Atomic ino_t inode; /* 0: no mark */
} owned[1 << 16];
#define OWNED ((int)(sizeof owned / sizeof owned[0]))

static atomic_int owned_end; /* above all marks */

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

int descriptors_own(int fd)
{
	struct stat st;
	if (fd < 0 || fd >= OWNED || fstat(fd, &st) < 0)
		return fd;
	owned[fd].device = st.st_dev;
	atomic_store(&owned[fd].inode, st.st_ino);
	int end = atomic_load(&owned_end);
	while (end <= fd && !atomic_compare_exchange_weak(&owned_end, &end, fd + 1))
		;
	return fd;
}

static void close_owned(void)
{
	struct stat st;
	for (int fd = 0; fd < atomic_load(&owned_end); fd++) {
		ino_t inode = atomic_load(&owned[fd].inode);
		if (inode && fstat(fd, &st) == 0 && st.st_ino == inode && st.st_dev == owned[fd].device)
			close(fd);
	}
}

static void register_handler(void)
{
	pthread_atfork(NULL, NULL, close_owned);
}

void descriptors_close_in_children(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, register_handler);
}
