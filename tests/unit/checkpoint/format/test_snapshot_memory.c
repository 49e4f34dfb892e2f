/* SPDX-License-Identifier: Apache-2.0 */
/* snapshot_memory: buffers that two processes share and nobody can resize; what is no such memory
 * is refused. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include <errno.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "checkpoint/format/snapshot_memory.h"
#include "common/auto.h"
#include "tests/unit/files.h"

static void both_sides_see_the_same_bytes(void **state)
{
	struct snapshot_memory mine, theirs;
	struct err err;
	int fds[SNAPSHOT_BUFFERS];
	if (snapshot_memory_create(&mine, 2, 10000, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(mine.bytes % (size_t)sysconf(_SC_PAGESIZE), 0);
	assert_true(mine.bytes >= 10000);
	for (int i = 0; i < 2; i++)
		assert_true((fds[i] = dup(mine.fd[i])) >= 0);
	if (snapshot_memory_adopt(&theirs, fds, 2, mine.bytes, &err) < 0)
		fail_msg("%s", err.text);
	for (int i = 0; i < 2; i++) {
		assert_int_equal((uintptr_t)theirs.base[i] % 4096, 0);
		memset(mine.base[i], 'a' + i, mine.bytes);
		assert_memory_equal(theirs.base[i], mine.base[i], mine.bytes);
	}
	/* Who has handed a buffer over may go: it stays as long as one of them holds it. */
	snapshot_memory_release(&mine);
	assert_int_equal(mine.buffers, 0);
	assert_int_equal(((char *)theirs.base[1])[9999], 'b');
	/* Read-only on this side: the kernel can't write there either. */
	AUTO_CLOSE int zero = open("/dev/zero", O_RDONLY);
	assert_int_equal(read(zero, theirs.base[0], 1), -1);
	assert_int_equal(errno, EFAULT);
	snapshot_memory_release(&theirs);
	snapshot_memory_release(&theirs);
}

static void buffers_come_beside_those_that_are_there(void **state)
{
	struct snapshot_memory memory;
	assert_int_equal(snapshot_memory_create(&memory, 1, 10000, NULL), 0);
	void *first = memory.base[0];
	memset(first, 'a', memory.bytes);
	assert_int_equal(snapshot_memory_extend(&memory, SNAPSHOT_BUFFERS, NULL), 0);
	assert_int_equal(snapshot_memory_extend(&memory, SNAPSHOT_BUFFERS + 1, NULL), -1);
	assert_int_equal(snapshot_memory_extend(&memory, 1, NULL), -1);
	assert_int_equal(memory.buffers, SNAPSHOT_BUFFERS);
	assert_ptr_equal(memory.base[0], first);
	for (int i = 1; i < SNAPSHOT_BUFFERS; i++)
		memset(memory.base[i], 'b', memory.bytes);
	assert_int_equal(((char *)first)[9999], 'a');
	snapshot_memory_release(&memory);
}

/* Where the descriptors run out, what was there stays. */
static void buffers_that_cannot_be_made_change_nothing(void **state)
{
	struct snapshot_memory memory;
	struct rlimit before, none;
	assert_int_equal(snapshot_memory_create(&memory, 1, 10000, NULL), 0);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	none = (struct rlimit) { (rlim_t)memory.fd[0] + 2, before.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	int result = snapshot_memory_extend(&memory, SNAPSHOT_BUFFERS, NULL);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	assert_int_equal(result, -1);
	assert_int_equal(memory.buffers, 1);
	assert_int_equal(memory.fd[1], -1);
	memset(memory.base[0], 'a', memory.bytes);
	snapshot_memory_release(&memory);
}

static void nobody_can_resize_a_buffer(void **state)
{
	struct snapshot_memory memory;
	assert_int_equal(snapshot_memory_create(&memory, 1, 5, NULL), 0);
	assert_int_equal(memory.fd[1], -1);
	assert_int_equal(ftruncate(memory.fd[0], 0), -1);
	assert_int_equal(errno, EPERM);
	assert_int_equal(ftruncate(memory.fd[0], 1 << 20), -1);
	assert_int_equal(fcntl(memory.fd[0], F_ADD_SEALS, F_SEAL_WRITE), -1);
	assert_true(fcntl(memory.fd[0], F_GETFD) & FD_CLOEXEC);
	snapshot_memory_release(&memory);
}

/* Pages of this process that the kernel has had to map until now. */
static long faults(void)
{
	struct rusage usage;
	assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
	return usage.ru_minflt;
}

/* Of a buffer whose middle is not there: the rest can be read without a fault, and the middle is
 * still not there. */
static void what_is_there_is_mapped_ahead(void **state)
{
	const size_t part = (size_t)80 << 20;
	struct snapshot_memory mine, theirs;
	struct stat before, after;
	char sum = 0;
	assert_int_equal(snapshot_memory_create(&mine, 1, 3 * part, NULL), 0);
	memset(mine.base[0], 1, part);
	memset((char *)mine.base[0] + 2 * part, 1, part);
	assert_int_equal(fstat(mine.fd[0], &before), 0);
	int fd = dup(mine.fd[0]);
	assert_int_equal(snapshot_memory_adopt(&theirs, &fd, 1, mine.bytes, NULL), 0);
	for (size_t at = 0, next; at < theirs.bytes; at = next) {
		next = snapshot_memory_map_ahead(&theirs, 0, at);
		assert_true(next > at && next <= theirs.bytes);
	}
	assert_int_equal(fstat(mine.fd[0], &after), 0);
	assert_int_equal(after.st_blocks, before.st_blocks);
	long mapped = faults();
	for (size_t at = 0; at < theirs.bytes; at += 4096)
		sum += at / part == 1 ? 0 : ((const volatile char *)theirs.base[0])[at];
	assert_int_equal(sum, (char)(2 * part / 4096));
	assert_true(faults() - mapped < 100);
	snapshot_memory_release(&mine);
	snapshot_memory_release(&theirs);
}

/* Takes over the descriptor, too. */
static void refused(int fd, size_t bytes, const char *why)
{
	struct snapshot_memory memory;
	struct err err;
	assert_true(fd >= 0);
	assert_int_equal(snapshot_memory_adopt(&memory, &fd, 1, bytes, &err), -1);
	if (!strstr(err.text, why))
		fail_msg("\"%s\", not \"%s\"", err.text, why);
	assert_int_equal(fcntl(fd, F_GETFD), -1);
}

static int memory_file(size_t bytes, int seals)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

static void what_is_no_sealed_memory_is_refused(void **state)
{
	char page[4096] = "";
	int ends[2];
	refused(open(files_write("plain", page, sizeof page), O_RDWR), 4096,
		"not a memory file of fixed size");
	refused(open("/dev/zero", O_RDWR), 4096, "not a memory file of fixed size");
	assert_int_equal(pipe(ends), 0);
	refused(ends[0], 4096, "not a memory file of fixed size");
	close(ends[1]);
	refused(memory_file(4096, 0), 4096, "not a memory file of fixed size");
	refused(memory_file(4096, F_SEAL_GROW), 4096, "not a memory file of fixed size");
	refused(memory_file(4096, F_SEAL_SHRINK), 4096, "not a memory file of fixed size");
	refused(memory_file(4096, F_SEAL_SHRINK | F_SEAL_GROW), 8192, "has 4096 bytes, not 8192");
	refused(memory_file(4096, F_SEAL_SHRINK | F_SEAL_GROW), 100, "couldn't make 1 buffers");
	refused(memory_file(4096, F_SEAL_SHRINK | F_SEAL_GROW), 0, "couldn't make 1 buffers");
}

/* More descriptors than there are buffers are closed, not lost. */
static void too_many_buffers_are_refused(void **state)
{
	struct snapshot_memory memory;
	int fds[SNAPSHOT_BUFFERS + 1];
	for (int i = 0; i <= SNAPSHOT_BUFFERS; i++)
		fds[i] = memory_file(4096, F_SEAL_SHRINK | F_SEAL_GROW);
	assert_int_equal(snapshot_memory_adopt(&memory, fds, SNAPSHOT_BUFFERS + 1, 4096, NULL), -1);
	for (int i = 0; i <= SNAPSHOT_BUFFERS; i++)
		assert_int_equal(fcntl(fds[i], F_GETFD), -1);
	assert_int_equal(snapshot_memory_create(&memory, SNAPSHOT_BUFFERS + 1, 4096, NULL), -1);
	assert_int_equal(snapshot_memory_create(&memory, 0, 4096, NULL), -1);
	assert_int_equal(snapshot_memory_create(&memory, 1, 0, NULL), -1);
	snapshot_memory_release(&memory);
}

static void this_machine_has_memory(void **state)
{
	size_t available = snapshot_memory_available();
	assert_true(available > 1 << 20);
	assert_true(available < (size_t)1 << 50);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(both_sides_see_the_same_bytes),
		cmocka_unit_test(buffers_come_beside_those_that_are_there),
		cmocka_unit_test(buffers_that_cannot_be_made_change_nothing),
		cmocka_unit_test(nobody_can_resize_a_buffer),
		cmocka_unit_test(what_is_there_is_mapped_ahead),
		cmocka_unit_test(what_is_no_sealed_memory_is_refused),
		cmocka_unit_test(too_many_buffers_are_refused),
		cmocka_unit_test(this_machine_has_memory),
	};
	return cmocka_run_group_tests_name("snapshot_memory", tests, files_setup, files_teardown);
}
