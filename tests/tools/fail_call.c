/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded into one of Muster's programs, it has a call fail as on a machine that has run out of
 * something: the FAIL_CALL-th of those that the program's own code makes for memory
 * (FAIL_KIND=memory) or for files, descriptors, connections, threads and processes
 * (FAIL_KIND=system). The call's name goes to the file FAIL_LOG; with FAIL_CALL=0 none fails, and
 * the number of calls goes there when the program exits. The programs that it starts are spared. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/tools/our_calls.h"

enum kind { MEMORY, SYSTEM };

static enum kind wanted;
static long number, calls; /* 0: none */
static const char *log_path;

/* Opened for each, since a service closes what it has not opened itself. */
static void note(const char *text)
{
	const int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC;
	int fd = log_path ? (int)syscall(SYS_openat, AT_FDCWD, log_path, flags, 0666) : -1;
	if (fd >= 0) {
		syscall(SYS_write, fd, text, strlen(text));
		syscall(SYS_close, fd);
	}
}

__attribute__((constructor)) static void begin(void)
{
	const char *kind = getenv("FAIL_KIND"), *call = getenv("FAIL_CALL");
	wanted = kind && strcmp(kind, "memory") == 0 ? MEMORY : SYSTEM;
	number = call ? strtol(call, NULL, 10) : 0;
	log_path = getenv("FAIL_LOG");
	if (our_call((const void *)getauxval(AT_ENTRY)))
		unsetenv("LD_PRELOAD");
}

__attribute__((destructor)) static void end(void)
{
	char text[40];
	snprintf(text, sizeof text, "%ld calls\n", calls);
	if (number == 0 && calls > 0)
		note(text);
}

/* What a linked library does before main is its own. */
static bool started;
static int (*program)(int argc, char **argv, char **environment);

static int start(int argc, char **argv, char **environment)
{
	started = true;
	return program(argc, argv, environment);
}

int __libc_start_main(int (*main)(int, char **, char **), int argc, char **argv, void (*init)(void),
	void (*fini)(void), void (*rtld_fini)(void), void *stack_end);
int __libc_start_main(int (*main)(int, char **, char **), int argc, char **argv, void (*init)(void),
	void (*fini)(void), void (*rtld_fini)(void), void *stack_end)
{
	int (*next)(int (*)(int, char **, char **), int, char **, void (*)(void), void (*)(void),
		void (*)(void), void *);
	*(void **)&next = dlsym(RTLD_NEXT, "__libc_start_main");
	program = main;
	return next(start, argc, argv, init, fini, rtld_fini, stack_end);
}

static bool due(enum kind kind, const char *name, const void *caller)
{
	if (!started || kind != wanted || !our_call(caller)
		|| __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED) != number)
		return false;
	char text[60] = "";
	strncat(strncat(text, name, 50), "\n", 2);
	note(text);
	return true;
}

/* A call that fails with `failure` and sets errno to `error`. */
#define CALL(kind, error, failure, result, name, parameters, arguments) \
	result name parameters; \
	result name parameters \
	{ \
		static result(*next) parameters; \
		if (due(kind, #name, __builtin_return_address(0))) { \
			errno = error; \
			return failure; \
		} \
		if (!next) \
			*(void **)&next = dlsym(RTLD_NEXT, #name); \
		return next arguments; \
	}

#define GETS(...) CALL(MEMORY, ENOMEM, __VA_ARGS__)
#define LACKS(...) CALL(SYSTEM, EMFILE, __VA_ARGS__)
#define ERRS(...) CALL(SYSTEM, EIO, __VA_ARGS__)
#define FILLS(...) CALL(SYSTEM, ENOBUFS, __VA_ARGS__)

GETS(NULL, void *, malloc, (size_t size), (size))
GETS(NULL, void *, calloc, (size_t count, size_t size), (count, size))
GETS(NULL, void *, realloc, (void *old, size_t size), (old, size))
GETS(NULL, void *, aligned_alloc, (size_t alignment, size_t size), (alignment, size))
GETS(ENOMEM, int, posix_memalign, (void **p, size_t alignment, size_t size), (p, alignment, size))
GETS(NULL, char *, strdup, (const char *text), (text))
GETS(NULL, char *, strndup, (const char *text, size_t size), (text, size))
GETS(-1, int, __vasprintf_chk, (char **out, int flag, const char *format, va_list list),
	(out, flag, format, list))
GETS(NULL, FILE *, open_memstream, (char **out, size_t *size), (out, size))

LACKS(NULL, FILE *, fopen, (const char *path, const char *mode), (path, mode))
LACKS(NULL, FILE *, fdopen, (int fd, const char *mode), (fd, mode))
LACKS(NULL, void *, fdopendir, (int fd), (fd))
LACKS(-1, int, memfd_create, (const char *name, unsigned flags), (name, flags))
LACKS(-1, int, eventfd, (unsigned value, int flags), (value, flags))
LACKS(-1, int, socket, (int domain, int type, int protocol), (domain, type, protocol))
LACKS(-1, int, socketpair, (int domain, int type, int protocol, int pair[2]),
	(domain, type, protocol, pair))
LACKS(-1, int, pipe2, (int pair[2], int flags), (pair, flags))
LACKS(-1, int, epoll_create1, (int flags), (flags))
LACKS(MAP_FAILED, void *, mmap,
	(void *address, size_t size, int protection, int flags, int fd, off_t at),
	(address, size, protection, flags, fd, at))
LACKS(EAGAIN, int, pthread_create,
	(pthread_t * thread, const pthread_attr_t *attributes, void *(*run)(void *), void *arg),
	(thread, attributes, run, arg))
LACKS(EAGAIN, int, posix_spawnp,
	(pid_t * pid, const char *file, const posix_spawn_file_actions_t *actions,
		const posix_spawnattr_t *attributes, char *const argv[], char *const environment[]),
	(pid, file, actions, attributes, argv, environment))
ERRS(-1, ssize_t, read, (int fd, void *out, size_t size), (fd, out, size))
ERRS(-1, ssize_t, pread, (int fd, void *out, size_t size, off_t at), (fd, out, size, at))
ERRS(-1, ssize_t, pwrite, (int fd, const void *in, size_t size, off_t at), (fd, in, size, at))
ERRS(-1, int, fstat, (int fd, struct stat *out), (fd, out))
ERRS(-1, int, stat, (const char *path, struct stat *out), (path, out))
ERRS(-1, int, fstatat, (int fd, const char *path, struct stat *out, int flags),
	(fd, path, out, flags))
ERRS(-1, int, fsync, (int fd), (fd))
ERRS(-1, int, ftruncate, (int fd, off_t size), (fd, size))
ERRS(-1, int, mkdir, (const char *path, mode_t mode), (path, mode))
ERRS(-1, int, mkdirat, (int fd, const char *path, mode_t mode), (fd, path, mode))
ERRS(-1, int, unlinkat, (int fd, const char *path, int flags), (fd, path, flags))
ERRS(-1, int, linkat, (int fd, const char *path, int to, const char *as, int flags),
	(fd, path, to, as, flags))
ERRS(-1, int, renameat, (int fd, const char *path, int to, const char *as), (fd, path, to, as))
ERRS(-1, int, renameat2, (int fd, const char *path, int to, const char *as, unsigned flags),
	(fd, path, to, as, flags))
ERRS(-1, int, fallocate, (int fd, int mode, off_t at, off_t size), (fd, mode, at, size))
FILLS(-1, ssize_t, send, (int fd, const void *in, size_t size, int flags), (fd, in, size, flags))
FILLS(-1, ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags), (fd, message, flags))
FILLS(-1, ssize_t, recv, (int fd, void *out, size_t size, int flags), (fd, out, size, flags))
FILLS(-1, ssize_t, recvmsg, (int fd, struct msghdr *message, int flags), (fd, message, flags))
ERRS(-1, ssize_t, getrandom, (void *out, size_t size, unsigned flags), (out, size, flags))

/* What goes to standard error tells of a failure. */
ssize_t write(int fd, const void *in, size_t size)
{
	if (fd != STDERR_FILENO && due(SYSTEM, "write", __builtin_return_address(0))) {
		errno = ENOSPC;
		return -1;
	}
	return syscall(SYS_write, fd, in, size);
}

static int open_at(int fd, const char *path, int flags, mode_t mode, const void *caller)
{
	if (due(SYSTEM, "open", caller)) {
		errno = EMFILE;
		return -1;
	}
	return (int)syscall(SYS_openat, fd, path, flags, mode);
}

#define MODE(last) \
	va_list list; \
	va_start(list, last); \
	const mode_t mode = last & (O_CREAT | __O_TMPFILE) ? va_arg(list, mode_t) : 0; \
	va_end(list)

int open(const char *path, int flags, ...)
{
	MODE(flags);
	return open_at(AT_FDCWD, path, flags, mode, __builtin_return_address(0));
}

int openat(int fd, const char *path, int flags, ...)
{
	MODE(flags);
	return open_at(fd, path, flags, mode, __builtin_return_address(0));
}

int __openat_2(int fd, const char *path, int flags);
int __openat_2(int fd, const char *path, int flags)
{
	return open_at(fd, path, flags, 0, __builtin_return_address(0));
}
