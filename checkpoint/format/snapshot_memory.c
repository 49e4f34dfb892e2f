/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshot memory consists of memfds: they have no name by which another user could open them, and
 * their seals fix the size, so that a process which maps one can read all of it whatever the other
 * process does. */
#include "config.h"
#include "checkpoint/format/snapshot_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/descriptors.h"
#include "common/io.h"
#include "checkpoint/format/memory_limit.h"

#define SIZE_SEALS (F_SEAL_SHRINK | F_SEAL_GROW)

#define AHEAD ((off_t)64 << 20) /* bytes to map in one call */

#ifndef MFD_NOEXEC_SEAL
/* Linux 6.3; where sysctl vm.memfd_noexec is 2, a memfd can't be created without it. */
#define MFD_NOEXEC_SEAL 8u
#endif

static void start(struct snapshot_memory *memory, int buffers, size_t bytes)
{
	*memory = (struct snapshot_memory) { .buffers = buffers, .bytes = bytes };
	for (int i = 0; i < SNAPSHOT_BUFFERS; i++)
		memory->fd[i] = -1;
}

static int map_buffer(struct snapshot_memory *memory, int buffer, int protection, struct err *err)
{
	void *base = mmap(NULL, memory->bytes, protection, MAP_SHARED, memory->fd[buffer], 0);
	if (base == MAP_FAILED)
		return err_set(err, "snapshot: couldn't map %zu MB of memory: %m", memory->bytes >> 20);
	/* For kernels that have large pages for shared memory but use them only where a program
	 * asks. */
	madvise(base, memory->bytes, MADV_HUGEPAGE);
	memory->base[buffer] = base;
	return 0;
}

static int make_buffer(struct snapshot_memory *memory, int buffer, struct err *err)
{
	int fd = memfd_create("muster-snapshot", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
	if (fd < 0 && errno == EINVAL)
		fd = memfd_create("muster-snapshot", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	memory->fd[buffer] = descriptors_own(fd);
	if (fd < 0 || ftruncate(fd, (off_t)memory->bytes) < 0
		|| fcntl(fd, F_ADD_SEALS, SIZE_SEALS | F_SEAL_SEAL) < 0)
		return err_fail(err, io_status(errno),
			"snapshot: couldn't make a memory file of %zu MB: %m", memory->bytes >> 20);
	return map_buffer(memory, buffer, PROT_READ | PROT_WRITE, err);
}

/* Closes the buffers from `first` on. */
static void drop(struct snapshot_memory *memory, int first)
{
	for (; memory->buffers > first; memory->buffers--) {
		int last = memory->buffers - 1;
		if (memory->base[last])
			munmap(memory->base[last], memory->bytes);
		if (memory->fd[last] >= 0)
			close(memory->fd[last]);
		memory->base[last] = NULL;
		memory->fd[last] = -1;
	}
}

int snapshot_memory_extend(struct snapshot_memory *memory, int buffers, struct err *err)
{
	int before = memory->buffers;
	if (buffers < before || buffers > SNAPSHOT_BUFFERS)
		return err_set(err, "snapshot: couldn't make %d buffers of %d", buffers, before);
	while (memory->buffers < buffers)
		if (make_buffer(memory, memory->buffers++, err) < 0) {
			drop(memory, before);
			return -1;
		}
	return 0;
}

int snapshot_memory_create(struct snapshot_memory *memory, int buffers, size_t bytes,
	struct err *err)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	start(memory, 0, 0);
	if (buffers < 1 || buffers > SNAPSHOT_BUFFERS || bytes == 0 || bytes > SIZE_MAX / 2)
		return err_set(err, "snapshot: couldn't make %d buffers of %zu bytes", buffers, bytes);
	memory->bytes = (bytes + page - 1) / page * page;
	return snapshot_memory_extend(memory, buffers, err);
}

/* A process that reads mapped memory whose file was truncated gets SIGBUS, so only a memfd that
 * can't shrink is accepted. */
static int adopt_buffer(struct snapshot_memory *memory, int buffer, struct err *err)
{
	struct stat st;
	int seals = fcntl(memory->fd[buffer], F_GET_SEALS);
	if (seals < 0 || (seals & SIZE_SEALS) != SIZE_SEALS)
		return err_set(err,
			"snapshot: couldn't use the memory that was handed over: not a memory file of fixed "
			"size");
	if (fstat(memory->fd[buffer], &st) < 0)
		return err_set(err, "snapshot: couldn't look at the memory that was handed over: %m");
	if ((unsigned long long)st.st_size < memory->bytes)
		return err_set(err, "snapshot: the memory that was handed over has %lld bytes, not %zu",
			(long long)st.st_size, memory->bytes);
	return map_buffer(memory, buffer, PROT_READ, err);
}

int snapshot_memory_adopt(struct snapshot_memory *memory, const int *fds, int buffers, size_t bytes,
	struct err *err)
{
	int result = 0;
	start(memory, 0, bytes);
	for (int i = SNAPSHOT_BUFFERS; i < buffers; i++)
		close(fds[i]);
	for (; memory->buffers < buffers && memory->buffers < SNAPSHOT_BUFFERS; memory->buffers++)
		memory->fd[memory->buffers] = fds[memory->buffers];
	if (buffers < 1 || buffers > SNAPSHOT_BUFFERS || bytes == 0
		|| bytes % (size_t)sysconf(_SC_PAGESIZE))
		result = err_set(err, "snapshot: couldn't make %d buffers of %zu bytes", buffers, bytes);
	for (int i = 0; result == 0 && i < memory->buffers; i++)
		result = adopt_buffer(memory, i, err);
	if (result < 0)
		snapshot_memory_release(memory);
	return result;
}

/* Reads one byte of each page. MADV_POPULATE_READ would allocate the missing pages, and takes
 * longer. */
size_t snapshot_memory_map_ahead(const struct snapshot_memory *memory, int buffer, size_t from)
{
	off_t page = sysconf(_SC_PAGESIZE), end = (off_t)memory->bytes;
	off_t at = lseek(memory->fd[buffer], (off_t)from, SEEK_DATA);
	if (at < 0 || at >= end)
		return memory->bytes;
	off_t hole = lseek(memory->fd[buffer], at, SEEK_HOLE), most = at + AHEAD;
	end = hole > at && hole < end ? hole : end;
	end = most < end ? most : end;
	for (; at < end; at += page)
		*((const volatile char *)memory->base[buffer] + at);
	return (size_t)end;
}

void snapshot_memory_release(struct snapshot_memory *memory)
{
	drop(memory, 0);
	*memory = (struct snapshot_memory) { 0 };
}

size_t snapshot_memory_available(void)
{
	return memory_limit_available("");
}
