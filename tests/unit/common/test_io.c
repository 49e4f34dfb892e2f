/* SPDX-License-Identifier: Apache-2.0 */
/* io: a durable replacement leaves the old bytes or the new ones, whatever fails and whenever it is
 * killed. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <cmocka.h>

#include "common/io.h"
#include "tests/unit/files.h"

/* The system calls below stand in front of libc's: they record their order and fail on demand. */
static char calls[200];
static int fail_fsync_file, fail_fsync_dir, fail_rename, fail_close; /* an errno, or 0 */
static size_t write_most; /* bytes of one write; 0: no limit */
static int writes_interrupted;

static void record(const char *call)
{
	strncat(calls, call, sizeof calls - strlen(calls) - 1);
}

static int fail_with(int error_number)
{
	errno = error_number;
	return -1;
}

int fsync(int fd)
{
	struct stat st;
	fstat(fd, &st);
	int error_number = S_ISDIR(st.st_mode) ? fail_fsync_dir : fail_fsync_file;
	record(S_ISDIR(st.st_mode) ? "fsync-folder " : "fsync ");
	return error_number ? fail_with(error_number) : (int)syscall(SYS_fsync, fd);
}

int renameat(int from_dir, const char *from, int to_dir, const char *to)
{
	record("rename ");
	return fail_rename ? fail_with(fail_rename)
					   : (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, 0);
}

int close(int fd)
{
	int rc = (int)syscall(SYS_close, fd);
	if (!calls[0])
		return rc;
	record("close ");
	return fail_close ? fail_with(fail_close) : rc;
}

ssize_t write(int fd, const void *buffer, size_t size)
{
	if (writes_interrupted > 0) {
		writes_interrupted--;
		return fail_with(EINTR);
	}
	return syscall(SYS_write, fd, buffer, write_most && size > write_most ? write_most : size);
}

static void no_faults(void)
{
	fail_fsync_file = fail_fsync_dir = fail_rename = fail_close = writes_interrupted = 0;
	write_most = 0;
	calls[0] = '\0';
}

static int files_in_folder(void)
{
	int count = 0;
	DIR *folder = opendir(files_dir);
	assert_non_null(folder);
	for (struct dirent *entry; (entry = readdir(folder));)
		count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
	closedir(folder);
	return count;
}

/* A folder with the one file "f" that holds "old". Returns it opened. */
static int open_folder(void)
{
	files_write("f", "old", 3);
	int dirfd = open(files_dir, O_RDONLY | O_DIRECTORY);
	assert_true(dirfd >= 0);
	no_faults();
	return dirfd;
}

static void holds(int dirfd, const char *expected)
{
	char *data;
	size_t size;
	struct err err;
	no_faults();
	assert_int_equal(io_read_file(dirfd, "f", 1000, &data, &size, &err), 0);
	assert_int_equal(size, strlen(expected));
	assert_string_equal(data, expected);
	assert_int_equal(files_in_folder(), 1);
	free(data);
}

static void replaces_in_the_durable_order(void **state)
{
	struct err err;
	int dirfd = open_folder();
	assert_int_equal(io_replace_durably(dirfd, "f", "new bytes", 9, &err), 0);
	assert_string_equal(calls, "fsync close rename fsync-folder ");
	holds(dirfd, "new bytes");
	assert_int_equal(unlinkat(dirfd, "f", 0), 0);
	assert_int_equal(io_replace_durably(dirfd, "f", "", 0, &err), 0);
	holds(dirfd, "");
	close(dirfd);
}

static void short_and_interrupted_writes_are_completed(void **state)
{
	struct err err;
	int dirfd = open_folder();
	write_most = 1;
	writes_interrupted = 3;
	assert_int_equal(io_replace_durably(dirfd, "f", "new bytes", 9, &err), 0);
	holds(dirfd, "new bytes");
	close(dirfd);
}

static void a_fault_keeps_the_old_file(void **state)
{
	static const struct {
		int *fault, error_number;
		enum exit_status status;
		const char *calls, *text;
	} faults[] = {
		{ &fail_fsync_file, EIO, EXIT_LOST, "fsync close ",
			"Input/output error" }, /* one fsync, never a second */
		{ &fail_fsync_file, ENOSPC, EXIT_LOST, "fsync close ", "No space left" },
		{ &fail_close, EDQUOT, EXIT_LOST, "fsync close ", "Disk quota" },
		{ &fail_rename, EACCES, EXIT_FAULT, "fsync close rename ", "Permission denied" },
		{ &fail_rename, ESTALE, EXIT_LOST, "fsync close rename ", "Stale" },
	};
	struct err err;
	int dirfd = open_folder();
	for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
		no_faults();
		*faults[i].fault = faults[i].error_number;
		assert_int_equal(io_replace_durably(dirfd, "f", "new", 3, &err), -1);
		assert_string_equal(calls, faults[i].calls);
		assert_int_equal(err.status, faults[i].status);
		assert_non_null(strstr(err.text, faults[i].text));
		holds(dirfd, "old");
	}
	no_faults();
	fail_fsync_dir =
		EIO; /* the name may or may not last: an error, though the new bytes are there now */
	assert_int_equal(io_replace_durably(dirfd, "f", "new", 3, &err), -1);
	assert_int_equal(err.status, EXIT_LOST);
	holds(dirfd, "new");
	close(dirfd);
}

/* The body's return value, from a process of its own. */
static int in_child(int (*body)(int dirfd), int dirfd)
{
	fflush(NULL);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		_exit(body(dirfd));
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static int replace_beyond_the_limit(int dirfd)
{
	static char bytes[100000];
	struct err err;
	struct rlimit limit = { 5000, 5000 };
	signal(SIGXFSZ, SIG_IGN);
	setrlimit(RLIMIT_FSIZE, &limit);
	if (io_replace_durably(dirfd, "f", bytes, sizeof bytes, &err) == 0)
		return 1;
	return strstr(err.text, "File too large") ? 0 : 2;
}

static void a_file_cut_short_is_no_file(void **state)
{
	int dirfd = open_folder();
	assert_int_equal(in_child(replace_beyond_the_limit, dirfd), 0);
	holds(dirfd, "old");
	close(dirfd);
}

static int replace_as_nobody(int dirfd)
{
	struct err err;
	if (geteuid() == 0 && (setgid(65534) < 0 || setuid(65534) < 0))
		return 1;
	if (io_replace_durably(dirfd, "f", "new", 3, &err) == 0)
		return 2;
	return err.status == EXIT_FAULT && strstr(err.text, "couldn't create")
			&& strstr(err.text, "Permission denied")
		? 0
		: 3;
}

static void a_folder_without_permission(void **state)
{
	int dirfd = open_folder();
	assert_int_equal(fchmod(dirfd, 0500), 0);
	assert_int_equal(in_child(replace_as_nobody, dirfd), 0);
	assert_int_equal(fchmod(dirfd, 0700), 0);
	holds(dirfd, "old");
	close(dirfd);
}

#define LARGE (256 << 10)

/* The bytes are all 'a', all 'b' and so on, a new file for each letter. */
static void replace_for_ever(int dirfd)
{
	static char bytes[LARGE];
	struct err err;
	for (int i = 0;; i++) {
		memset(bytes, 'a' + i % 26, sizeof bytes);
		if (io_replace_durably(dirfd, "large", bytes, sizeof bytes, &err) < 0)
			_exit(1);
	}
}

/* One whole file of one letter, however early or late the kill came. */
static void a_kill_leaves_a_whole_file(void **state)
{
	int dirfd = open_folder();
	files_write("large", "a", 1);
	for (int i = 0; i < 25; i++) {
		pid_t pid = fork();
		assert_true(pid >= 0);
		if (pid == 0)
			replace_for_ever(dirfd);
		usleep(2000 + (useconds_t)i * 1300);
		kill(pid, SIGKILL);
		int status;
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFSIGNALED(status));
		struct err err;
		char *data;
		size_t size;
		assert_int_equal(io_read_file(dirfd, "large", LARGE, &data, &size, &err), 0);
		assert_true(size == LARGE || size == 1);
		assert_int_equal(strspn(data, (char[]) { data[0], 0 }), size);
		free(data);
	}
	close(dirfd);
}

static void reads_are_checked(void **state)
{
	struct err err;
	char *data;
	size_t size;
	int dirfd = open_folder();
	assert_int_equal(io_read_file(dirfd, "none", 10, &data, &size, &err), -1);
	assert_int_equal(errno, ENOENT);
	assert_int_equal(err.status, EXIT_DATA);
	assert_int_equal(io_read_file(dirfd, "f", 2, &data, &size, &err), -1);
	assert_int_equal(err.status, EXIT_DATA);
	assert_non_null(strstr(err.text, "3 bytes, more than 2"));
	assert_int_equal(io_read_file(AT_FDCWD, files_dir, 10, &data, &size, &err), -1);
	assert_non_null(strstr(err.text, "not a regular file"));
	assert_int_equal(mkfifo(files_path("fifo"), 0600), 0);
	assert_int_equal(io_read_file(dirfd, "fifo", 10, &data, &size, &err),
		-1); /* at once, though nobody writes */
	assert_int_equal(io_read_file(AT_FDCWD, files_path("f"), 3, &data, &size, &err), 0);
	assert_string_equal(data, "old");
	free(data);
	close(dirfd);
}

static void what_may_pass_is_told_from_what_lasts(void **state)
{
	static const int passing[] = { EIO, ENOSPC, EDQUOT, EROFS, ESTALE, EAGAIN, EINTR, ETIMEDOUT,
		EBUSY, ENOMEM, EMFILE, ENFILE, ENOLCK, ESHUTDOWN, ENOTCONN, ECONNRESET, ECONNREFUSED,
		ECONNABORTED, EPIPE, ECOMM, EREMOTEIO, EREMCHG, EPROTO, ENOLINK, ENONET, EHOSTDOWN,
		EHOSTUNREACH, ENETDOWN, ENETUNREACH, ENETRESET, ENOBUFS, EKEYEXPIRED, EUCLEAN, ENODATA,
		ECANCELED };
	static const int lasting[] = { EACCES, EPERM, ENOENT, ENOTDIR, EISDIR, ELOOP, ENAMETOOLONG,
		EEXIST, ENOTEMPTY, EINVAL, EXDEV, EFBIG, EOPNOTSUPP, ENOSYS };
	for (size_t i = 0; i < sizeof passing / sizeof passing[0]; i++) {
		assert_int_equal(io_status(passing[i]), EXIT_LOST);
		assert_int_equal(io_status_or(passing[i], EXIT_DATA), EXIT_LOST);
	}
	for (size_t i = 0; i < sizeof lasting / sizeof lasting[0]; i++) {
		assert_int_equal(io_status(lasting[i]), EXIT_FAULT);
		assert_int_equal(io_status_or(lasting[i], EXIT_USAGE), EXIT_USAGE);
	}
}

/* A process without a descriptor left has not found bad data. */
static void a_file_that_cannot_be_opened_now_is_not_bad(void **state)
{
	struct err err;
	struct rlimit before;
	char *data;
	size_t size;
	int dirfd = open_folder();
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &(struct rlimit) { 0, before.rlim_max }), 0);
	int result = io_read_file(dirfd, "f", 10, &data, &size, &err), why = errno;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	assert_int_equal(result, -1);
	assert_int_equal(why, EMFILE);
	assert_int_equal(err.status, EXIT_LOST);
	close(dirfd);
}

static void full_reads_end_at_the_end(void **state)
{
	char out[10] = "";
	int ends[2];
	assert_int_equal(pipe(ends), 0);
	assert_int_equal(io_write_full(ends[1], "abc", 3), 0);
	assert_int_equal(io_write_full(ends[1], "de", 2), 0);
	assert_int_equal(io_read_full(ends[0], out, 4), 4);
	assert_string_equal(out, "abcd");
	close(ends[1]);
	assert_int_equal(io_read_full(ends[0], out, 4), 1);
	close(ends[0]);
	assert_int_equal(io_read_full(ends[0], out, 4), -1);
	assert_int_equal(errno, EBADF);
	int full = open("/dev/full", O_WRONLY);
	assert_int_equal(io_write_full(full, "abc", 3), -1);
	assert_int_equal(errno, ENOSPC);
	close(full);
}

/* Where a descriptor stands is of no concern, and stays. */
static void reads_at_a_place_leave_the_descriptor_alone(void **state)
{
	char out[10] = "";
	files_write("f", "0123456789", 10);
	int fd = open(files_path("f"), O_RDONLY);
	assert_int_equal(io_read_at(fd, out, 4, 3), 4);
	assert_memory_equal(out, "3456", 4);
	assert_int_equal(io_read_at(fd, out, 4, 8), 2);
	assert_int_equal(io_read_at(fd, out, 4, 10), 0);
	assert_int_equal(io_read_within(fd, out, 3, 8, 1), 8);
	assert_memory_equal(out, "12345678", 8);
	assert_int_equal(io_read_within(fd, out, 3, 8, 6), 4);
	assert_int_equal(io_read_within(fd, out, 6, 8, 6), 4); /* less than `size` only at the end */
	assert_int_equal(lseek(fd, 0, SEEK_CUR), 0);
	close(fd);
	assert_int_equal(io_read_at(fd, out, 4, 0), -1);
	assert_int_equal(errno, EBADF);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(replaces_in_the_durable_order, files_setup, files_teardown),
		cmocka_unit_test_setup_teardown(short_and_interrupted_writes_are_completed, files_setup,
			files_teardown),
		cmocka_unit_test_setup_teardown(a_fault_keeps_the_old_file, files_setup, files_teardown),
		cmocka_unit_test_setup_teardown(a_file_cut_short_is_no_file, files_setup, files_teardown),
		cmocka_unit_test_setup_teardown(a_folder_without_permission, files_setup, files_teardown),
		cmocka_unit_test_setup_teardown(a_kill_leaves_a_whole_file, files_setup, files_teardown),
		cmocka_unit_test_setup_teardown(reads_are_checked, files_setup, files_teardown),
		cmocka_unit_test(what_may_pass_is_told_from_what_lasts),
		cmocka_unit_test_setup_teardown(a_file_that_cannot_be_opened_now_is_not_bad, files_setup,
			files_teardown),
		cmocka_unit_test_setup_teardown(full_reads_end_at_the_end, files_setup, files_teardown),
		cmocka_unit_test_setup_teardown(reads_at_a_place_leave_the_descriptor_alone, files_setup,
			files_teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
