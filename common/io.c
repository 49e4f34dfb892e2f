/* SPDX-License-Identifier: Apache-2.0 */
/* File input and output that handles short transfers and EINTR, and replaces files durably. */
#include "common/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/auto.h"

/* An offset of -1 reads at the descriptor's position. */
static ssize_t read_until(int fd, void *buffer, size_t size, size_t room, off_t offset)
{
	size_t done = 0;
	while (done < size) {
		char *to = (char *)buffer + done;
		ssize_t n = offset < 0 ? read(fd, to, room - done)
							   : pread(fd, to, room - done, offset + (off_t)done);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -1;
		if (n == 0)
			break;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

ssize_t io_read_full(int fd, void *buffer, size_t size)
{
	return read_until(fd, buffer, size, size, -1);
}

ssize_t io_read_at(int fd, void *buffer, size_t size, off_t offset)
{
	return read_until(fd, buffer, size, size, offset);
}

ssize_t io_read_within(int fd, void *buffer, size_t size, size_t room, off_t offset)
{
	return read_until(fd, buffer, size, room, offset);
}

int io_write_full(int fd, const void *buffer, size_t size)
{
	size_t done = 0;
	while (done < size) {
		ssize_t n = write(fd, (const char *)buffer + done, size - done);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -1;
		done += (size_t)n;
	}
	return 0;
}

int io_read_rest(int dirfd, const char *name, off_t from, size_t limit, char **data, size_t *size,
	struct err *err)
{
	AUTO_CLOSE int fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (fd < 0)
		return err_fail(err, io_status_or(errno, EXIT_DATA), "read: couldn't open %s: %m", name);
	struct stat st;
	if (fstat(fd, &st) < 0)
		return err_fail(err, EXIT_LOST, "read: couldn't look at %s: %m", name);
	if (!S_ISREG(st.st_mode)) {
		errno = EINVAL;
		return err_fail(err, EXIT_DATA, "read: couldn't use %s: it is not a regular file", name);
	}
	if (st.st_size < from) {
		errno = ESTALE;
		return err_fail(err, EXIT_LOST, "read: couldn't use %s: it has become shorter", name);
	}
	const size_t rest = (size_t)(st.st_size - from);
	if (rest > limit) {
		errno = EFBIG;
		return err_fail(err, EXIT_DATA, "read: couldn't use %s: it has %zu bytes, more than %zu",
			name, rest, limit);
	}
	AUTO_FREE char *bytes = malloc(rest + 1);
	if (!bytes)
		return err_fail(err, io_status(errno), "read: no memory for the %zu bytes of %s", rest,
			name);
	ssize_t n = from > 0 && lseek(fd, from, SEEK_SET) < 0 ? -1 : io_read_full(fd, bytes, rest);
	if (n < 0)
		return err_fail(err, EXIT_LOST, "read: couldn't read %s: %m", name);
	bytes[n] = '\0';
	*size = (size_t)n;
	*data = AUTO_TAKE(bytes);
	return 0;
}

int io_read_file(int dirfd, const char *name, size_t limit, char **data, size_t *size,
	struct err *err)
{
	return io_read_rest(dirfd, name, 0, limit, data, size, err);
}

DIR *io_open_list(int dirfd)
{
	int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *stream = fd < 0 ? NULL : fdopendir(fd);
	int why = errno;
	if (!stream && fd >= 0)
		close(fd);
	errno = why;
	return stream;
}

int io_sync_dir(int dirfd, struct err *err)
{
	char link[40], path[300] = "";
	if (fsync(dirfd) == 0)
		return 0;
	const int why = errno;
	snprintf(link, sizeof link, "/proc/self/fd/%d", dirfd);
	if (readlink(link, path, sizeof path - 1) < 0)
		snprintf(path, sizeof path, "a folder");
	errno = why;
	return err_fail(err, io_status(why), "write: couldn't fsync %s: %m", path);
}

/* Writes and fsyncs `temporary`. close() is checked too, since network file systems report errors
 * there. */
static int write_synced(int dirfd, const char *temporary, const void *data, size_t size,
	struct err *err)
{
	int fd = openat(dirfd, temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (fd < 0)
		return err_fail(err, io_status(errno), "write: couldn't create %s: %m", temporary);
	if (io_write_full(fd, data, size) < 0 || fsync(fd) < 0) {
		int saved = errno;
		close(fd);
		errno = saved;
		return err_fail(err, io_status(saved), "write: couldn't write %s: %m", temporary);
	}
	if (close(fd) < 0)
		return err_fail(err, io_status(errno), "write: couldn't close %s: %m", temporary);
	return 0;
}

int io_replace_durably(int dirfd, const char *name, const void *data, size_t size, struct err *err)
{
	static unsigned int counter;
	char temporary[300];
	char host[64] = "";
	gethostname(host, sizeof host - 1);
	snprintf(temporary, sizeof temporary, ".%.150s.%.60s.%d.%u", name, host, (int)getpid(),
		__atomic_fetch_add(&counter, 1, __ATOMIC_RELAXED));
	/* A file left by a killed process with our PID would make O_EXCL fail for ever. */
	unlinkat(dirfd, temporary, 0);
	if (write_synced(dirfd, temporary, data, size, err) < 0) {
		unlinkat(dirfd, temporary, 0);
		return -1;
	}
	if (renameat(dirfd, temporary, dirfd, name) < 0) {
		err_fail(err, io_status(errno), "write: couldn't rename %s to %s: %m", temporary, name);
		unlinkat(dirfd, temporary, 0);
		return -1;
	}
	if (io_sync_dir(dirfd, err) < 0)
		return err_prefix(err, "%s", name);
	return 0;
}

int io_flush_output(struct err *err)
{
	return fflush(stdout) == 0 && !ferror(stdout)
		? 0
		: err_set(err, "output: couldn't write to standard output: %m");
}

bool io_has_no_locks(int error_number)
{
	return error_number == ENOLCK || error_number == ENOSYS || error_number == EOPNOTSUPP
		|| error_number == EINVAL;
}

/* Cluster file systems report a lost server by many error numbers: Lustre by ESHUTDOWN and
 * ENOTCONN, BeeGFS by ECOMM and EREMOTEIO, GPFS and NFS by ESTALE. So this lists the lasting errors
 * instead: a wrong request or a missing permission. */
enum exit_status io_status_or(int error_number, enum exit_status lasting)
{
	switch (error_number) {
	case EPERM:
	case EACCES:
	case ENOENT:
	case ENOTDIR:
	case EISDIR:
	case ELOOP:
	case ENAMETOOLONG:
	case EEXIST:
	case ENOTEMPTY:
	case EXDEV:
	case EMLINK:
	case EINVAL:
	case EBADF:
	case EFAULT:
	case ESPIPE:
	case EFBIG:
	case EOVERFLOW:
	case EILSEQ:
	case ENOSYS:
	case EOPNOTSUPP:
	case ENOTTY:
	case ENXIO:
	case ENODEV: return lasting;
	default: return EXIT_LOST;
	}
}

enum exit_status io_status(int error_number)
{
	return io_status_or(error_number, EXIT_FAULT);
}
