/* SPDX-License-Identifier: Apache-2.0 */
/* Every step of a path is opened from the folder before it, with O_NOFOLLOW, so that no user can
 * redirect root. */
#include "config.h"

#include "plugin/job_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>
#if __has_include(<linux/openat2.h>)
#include <linux/openat2.h>
#endif

#include "common/auto.h"
#include "common/io.h"

#define SERVICE_NAME "ckptd"
#define SOCKET_NAME "socket"
#define NOTE_NAME "service"
#define STEP_TIME 1 /* the socket's, in seconds since the epoch */
#define DEEPEST 32  /* nested folders that are removed; a service makes none */
#define FOLDER_FLAGS (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

char *job_folder_socket(const char *run, uint32_t job, char out[JOB_FOLDER_SOCKET_SIZE])
{
	snprintf(out, JOB_FOLDER_SOCKET_SIZE, "%.*s/job-%u/" SERVICE_NAME "/" SOCKET_NAME,
		JOB_FOLDER_RUN_MAX, run, job);
	return out;
}

/* ---- as root ---- */

/* Opens a folder that only the caller can change. -1 with errno; ENOENT if it is missing. */
static int open_own(int at, const char *name)
{
	struct stat st;
	AUTO_CLOSE int fd = openat(at, name, FOLDER_FLAGS);
	if (fd < 0 || fstat(fd, &st) < 0)
		return -1;
	if (st.st_uid != geteuid() || (st.st_mode & (S_IWGRP | S_IWOTH))) {
		errno = EPERM;
		return -1;
	}
	return AUTO_TAKE_FD(fd);
}

static int open_run(const char *run, struct err *err)
{
	int fd = open_own(AT_FDCWD, run);
	if (fd < 0 && errno == EPERM)
		return err_set(err,
			"folder: couldn't trust %s: it must be root's, and writable by nobody else; fix it, "
			"or give another run= in plugstack.conf",
			run);
	return fd < 0 ? err_set(err, "folder: couldn't open %s: %m", run) : fd;
}

static char *job_name(uint32_t job, char out[20])
{
	snprintf(out, 20, "job-%u", job);
	return out;
}

/* Opens the job's folder; -1 with errno ENOENT if there is none. */
static int open_job(const char *run, uint32_t job, struct err *err)
{
	char name[20];
	AUTO_CLOSE int at = open_own(AT_FDCWD, run);
	if (at < 0 && errno != ENOENT) {
		open_run(run, err);
		errno = EPERM;
		return -1;
	}
	int fd = at < 0 ? -1 : open_own(at, job_name(job, name));
	if (fd < 0) {
		int why = errno;
		err_set(err, "folder: couldn't open %s/%s: %m", run, job_name(job, name));
		errno = why;
	}
	return fd;
}

/* Makes a folder of the caller's that everybody may enter, whatever the umask. */
static int make_folder(int at, const char *name)
{
	if (mkdirat(at, name, 0700) < 0)
		return -1;
	AUTO_CLOSE int fd = openat(at, name, FOLDER_FLAGS);
	return fd < 0 || fchown(fd, geteuid(), getegid()) < 0 || fchmod(fd, 0755) < 0 ? -1 : 0;
}

/* Repairs the mode of RUN if its maker was killed before setting it: otherwise nobody could ever
 * enter it. */
static int open_for_all(int fd)
{
	struct stat st;
	return fstat(fd, &st) < 0 || ((st.st_mode & 0111) != 0111 && fchmod(fd, 0755) < 0) ? -1 : 0;
}

/* Opens RUN; makes it if it is missing. */
static int make_run(const char *run, struct err *err)
{
	if (make_folder(AT_FDCWD, run) < 0 && errno != EEXIST)
		return err_set(err, "folder: couldn't make %s: %m", run);
	AUTO_CLOSE int at = open_run(run, err);
	if (at < 0)
		return -1;
	if (open_for_all(at) < 0)
		return err_set(err, "folder: couldn't let all users into %s: %m", run);
	int made = at;
	at = -1;
	return made;
}

int job_folder_make(const char *run, uint32_t job, struct err *err)
{
	char name[20];
	AUTO_CLOSE int at = make_run(run, err);
	if (at < 0)
		return -1;
	if (make_folder(at, job_name(job, name)) < 0)
		return err_set(err, "folder: couldn't make %s/%s: %m", run, name);
	AUTO_CLOSE int fd = open_job(run, job, err);
	if (fd < 0)
		return -1;
	if (make_folder(fd, SERVICE_NAME) < 0)
		return err_set(err, "folder: couldn't make %s/%s/" SERVICE_NAME ": %m", run, name);
	return 0;
}

/* Binds in an open folder, which nobody else can change, so that the name keeps its meaning. */
static int bind_in(int folder, uid_t uid, gid_t gid)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	AUTO_CLOSE int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/" SOCKET_NAME, folder);
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) < 0)
		return -1;
	if (fchmodat(folder, SOCKET_NAME, 0600, 0) < 0
		|| fchownat(folder, SOCKET_NAME, uid, gid, AT_SYMLINK_NOFOLLOW) < 0)
		return -1;
	return AUTO_TAKE_FD(fd);
}

int job_folder_bind(const char *run, uint32_t job, uid_t uid, gid_t gid, struct err *err)
{
	AUTO_CLOSE int at = open_job(run, job, err);
	if (at < 0)
		return -1;
	AUTO_CLOSE int folder = open_own(at, SERVICE_NAME);
	int fd = folder < 0 ? -1 : bind_in(folder, uid, gid);
	if (fd < 0)
		return err_set(err, "folder: couldn't make %s/job-%u/" SERVICE_NAME "/" SOCKET_NAME ": %m",
			run, job);
	return fd;
}

int job_folder_exists(const char *run, uint32_t job, struct err *err)
{
	AUTO_CLOSE int fd = open_job(run, job, err);
	return fd >= 0 ? 1 : errno == ENOENT ? 0 : -1;
}

/* ---- removing ---- */

/* Opens a folder of the user's, but no file system that is mounted there: it could block root for
 * ever. */
static int open_users(int at, const char *name)
{
#ifdef RESOLVE_NO_XDEV
	const struct open_how how = { .flags = FOLDER_FLAGS,
		.resolve = RESOLVE_NO_XDEV | RESOLVE_NO_SYMLINKS };
	int fd = (int)syscall(SYS_openat2, at, name, &how, sizeof how);
	if (fd >= 0 || errno != ENOSYS)
		return fd;
#endif
	return openat(at, name, FOLDER_FLAGS);
}

static int remove_entry(int at, const char *name, int depth);

/* Empties an open folder and closes it. The folder becomes root's first, so that nobody adds
 * anything. */
static int empty(int fd, int depth)
{
	struct dirent *entry;
	int rc = fchown(fd, geteuid(), getegid()) < 0 || fchmod(fd, 0700) < 0 ? -1 : 0;
	DIR *stream = fdopendir(fd);
	if (!stream) {
		close(fd);
		return -1;
	}
	while (rc == 0 && (errno = 0, entry = readdir(stream)))
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			rc = remove_entry(dirfd(stream), entry->d_name, depth);
	if (rc == 0 && errno)
		rc = -1;
	int why = errno;
	closedir(stream);
	errno = why;
	return rc;
}

/* Removes a file, a link, or a folder with its content. */
static int remove_entry(int at, const char *name, int depth)
{
	if (unlinkat(at, name, 0) == 0 || errno == ENOENT)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return -1;
	if (depth > DEEPEST) {
		errno = ELOOP;
		return -1;
	}
	int fd = open_users(at, name);
	if (fd < 0 || empty(fd, depth + 1) < 0)
		return -1;
	return unlinkat(at, name, AT_REMOVEDIR);
}

int job_folder_remove_users(int at, const char *name)
{
	return remove_entry(at, name, 0);
}

int job_folder_remove(const char *run, uint32_t job, struct err *err)
{
	char name[20];
	AUTO_CLOSE int at = open_own(AT_FDCWD, run);
	if (at < 0 && errno == ENOENT)
		return 0;
	if (at < 0)
		return open_run(run, err);
	if (remove_entry(at, job_name(job, name), 0) < 0)
		return err_set(err, "folder: couldn't remove %s/%s: %m", run, name);
	return 0;
}

/* ---- the service's socket ---- */

bool job_folder_has_socket(const char *run, uint32_t job)
{
	struct stat st;
	AUTO_CLOSE int at = open_job(run, job, NULL);
	AUTO_CLOSE int fd = at < 0 ? -1 : open_users(at, SERVICE_NAME);
	return fd >= 0 && fstatat(fd, SOCKET_NAME, &st, AT_SYMLINK_NOFOLLOW) == 0
		&& S_ISSOCK(st.st_mode);
}

/* The mark is the socket's time: the user has no file here, which could be filled, but the socket
 * is the user's. */
bool job_folder_mark_step(const char *run, uint32_t job)
{
	char path[JOB_FOLDER_SOCKET_SIZE];
	struct stat st;
	const struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_sec = STEP_TIME } };
	bool marked =
		lstat(job_folder_socket(run, job, path), &st) == 0 && st.st_mtim.tv_sec == STEP_TIME;
	utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW);
	return marked;
}

int job_folder_had_step(const char *run, uint32_t job)
{
	struct stat st;
	AUTO_CLOSE int at = open_job(run, job, NULL);
	AUTO_CLOSE int fd = at < 0 ? -1 : open_users(at, SERVICE_NAME);
	if (fd < 0 || fstatat(fd, SOCKET_NAME, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISSOCK(st.st_mode))
		return -1;
	return st.st_mtim.tv_sec == STEP_TIME;
}

/* ---- root's notes ---- */

void job_folder_need(const char *run, uint32_t job)
{
	if (job_folder_exists(run, job, NULL) == 0)
		job_folder_make(run, job, NULL);
}

static int write_file(int at, const char *name, const char *text)
{
	AUTO_CLOSE int fd =
		openat(at, name, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	return fd < 0 ? -1 : io_write_full(fd, text, strlen(text));
}

static bool read_file(int at, const char *name, char *text, size_t size)
{
	AUTO_CLOSE int fd = at < 0 ? -1 : openat(at, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, size - 1);
	text[n < 0 ? 0 : n] = '\0';
	return n > 0;
}

int job_folder_write(const char *run, uint32_t job, const char *name, const char *text,
	struct err *err)
{
	AUTO_CLOSE int at = open_job(run, job, err);
	if (at < 0)
		return -1;
	if (write_file(at, name, text) < 0)
		return err_set(err, "folder: couldn't write %s/job-%u/%s: %m", run, job, name);
	return 0;
}

bool job_folder_read(const char *run, uint32_t job, const char *name, char *text, size_t size)
{
	AUTO_CLOSE int at = open_job(run, job, NULL);
	return read_file(at, name, text, size);
}

int job_folder_write_for_all(const char *run, const char *name, const char *text, struct err *err)
{
	char fresh[40];
	AUTO_CLOSE int at = text ? make_run(run, err) : open_own(AT_FDCWD, run);
	if (at < 0)
		return text ? -1 : 0;
	snprintf(fresh, sizeof fresh, ".%s", name);
	int rc = text ? write_file(at, fresh, text) : unlinkat(at, name, 0);
	if (text && rc == 0)
		rc = renameat(at, fresh, at, name);
	return rc < 0 && (text || errno != ENOENT)
		? err_set(err, "folder: couldn't write %s/%s: %m", run, name)
		: 0;
}

bool job_folder_read_for_all(const char *run, const char *name, char *text, size_t size)
{
	AUTO_CLOSE int at = open_own(AT_FDCWD, run);
	return read_file(at, name, text, size);
}

int job_folder_write_note(const char *run, uint32_t job, const struct job_note *note,
	struct err *err)
{
	char text[100];
	snprintf(text, sizeof text, "pid %d start %llu attempt %d\n", (int)note->service.pid,
		note->service.start, note->attempt);
	return job_folder_write(run, job, NOTE_NAME, text, err);
}

bool job_folder_read_note(const char *run, uint32_t job, struct job_note *note)
{
	char text[100];
	int pid;
	if (!job_folder_read(run, job, NOTE_NAME, text, sizeof text))
		return false;
	if (sscanf(text, "pid %d start %llu attempt %d", &pid, &note->service.start, &note->attempt)
		!= 3)
		return false;
	note->service.pid = pid;
	return true;
}
