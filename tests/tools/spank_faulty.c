/* SPDX-License-Identifier: Apache-2.0 */
/* The plugin, built once more for the tests, with calls that fail: "fault=HOOK:CALL" in
 * plugstack.conf makes each CALL in that hook of the plugin ("any": in all) fail as on a machine
 * that has run out of something. The linker puts these functions in front of the C library's and
 * Slurm's (--wrap). */
#include <errno.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plugin/spank_args.h"
#include "plugin/spank_contexts.h"

static char fault_hook[32], fault_call[32];
static const char *hook = "init"; /* that runs */

static bool fails(const char *call)
{
	return strcmp(fault_call, call) == 0
		&& (strcmp(fault_hook, hook) == 0 || strcmp(fault_hook, "any") == 0);
}

/* Takes the fault out of the arguments, which the plugin reads first of all. */
int __real_spank_args_parse(int argc, char **argv, struct spank_args *args, struct err *err);
int __wrap_spank_args_parse(int argc, char **argv, struct spank_args *args, struct err *err);
int __wrap_spank_args_parse(int argc, char **argv, struct spank_args *args, struct err *err)
{
	static char *rest[32];
	int n = 0;
	for (int i = 0; i < argc && n < 32; i++)
		if (sscanf(argv[i], "fault=%31[^:]:%31s", fault_hook, fault_call) != 2)
			rest[n++] = argv[i];
	return __real_spank_args_parse(n, rest, args, err);
}

/* ---- which hook runs ---- */

#define HOOK(name, word, parameters, arguments) \
	int __real_##name parameters; \
	int __wrap_##name parameters; \
	int __wrap_##name parameters \
	{ \
		const char *outer = hook; \
		hook = word; \
		int rc = __real_##name arguments; \
		hook = outer; \
		return rc; \
	}
#define FIRST_HOOK(name, word) \
	HOOK(name, word, (spank_t spank, int argc, char **argv), (spank, argc, argv))
#define LATER_HOOK(name, word) HOOK(name, word, (spank_t spank), (spank))

FIRST_HOOK(spank_srun_init, "srun_init")
LATER_HOOK(spank_srun_post_opt, "srun_post_opt")
FIRST_HOOK(spank_alloc_init, "alloc_init")
LATER_HOOK(spank_alloc_post_opt, "alloc_post_opt")
FIRST_HOOK(spank_stepd_init, "stepd_init")
LATER_HOOK(spank_stepd_post_opt, "post_opt")
LATER_HOOK(spank_stepd_user_init, "user_init")
LATER_HOOK(spank_stepd_task_init, "task_init")
LATER_HOOK(spank_stepd_task_exit, "task_exit")
FIRST_HOOK(spank_job_prolog, "prolog")
FIRST_HOOK(spank_job_epilog, "epilog")
HOOK(spank_srun_exit, "srun_exit", (void), ())

/* ---- what fails ---- */

#define CALL(type, name, parameters, arguments, error, result) \
	type __real_##name parameters; \
	type __wrap_##name parameters; \
	type __wrap_##name parameters \
	{ \
		if (!fails(#name)) \
			return __real_##name arguments; \
		errno = error; \
		return result; \
	}

CALL(pid_t, fork, (void), (), EAGAIN, -1)
CALL(int, pipe2, (int *ends, int flags), (ends, flags), EMFILE, -1)
CALL(int, socket, (int domain, int type, int protocol), (domain, type, protocol), EMFILE, -1)
CALL(void *, mmap, (void *at, size_t size, int protection, int flags, int fd, off_t offset),
	(at, size, protection, flags, fd, offset), ENOMEM, MAP_FAILED)
CALL(int, memfd_create, (const char *name, unsigned flags), (name, flags), ENOSPC, -1)
CALL(int, mkdirat, (int at, const char *name, mode_t mode), (at, name, mode), ENOSPC, -1)
CALL(int, fchown, (int fd, uid_t uid, gid_t gid), (fd, uid, gid), EROFS, -1)
CALL(int, unlinkat, (int at, const char *name, int flags), (at, name, flags), EROFS, -1)
CALL(void *, calloc, (size_t count, size_t size), (count, size), ENOMEM, NULL)
CALL(void *, malloc, (size_t size), (size), ENOMEM, NULL)
CALL(void *, realloc, (void *old, size_t size), (old, size), ENOMEM, NULL)
CALL(int, getpwuid_r,
	(uid_t uid, struct passwd *entry, char *text, size_t size, struct passwd **found),
	(uid, entry, text, size, found), EIO, EIO)
CALL(int, setresuid, (uid_t real, uid_t effective, uid_t saved), (real, effective, saved), EAGAIN,
	-1)
CALL(int, setgroups, (size_t count, const gid_t *groups), (count, groups), EPERM, -1)
CALL(void *, dlsym, (void *handle, const char *name), (handle, name), 0, NULL)
CALL(spank_err_t, spank_option_register, (spank_t spank, struct spank_option *option),
	(spank, option), 0, ESPANK_ERROR)
CALL(spank_err_t, spank_getenv, (spank_t spank, const char *name, char *value, int size),
	(spank, name, value, size), 0, ESPANK_ERROR)
CALL(spank_err_t, spank_setenv, (spank_t spank, const char *name, const char *value, int overwrite),
	(spank, name, value, overwrite), 0, ESPANK_ERROR)
CALL(spank_err_t, spank_job_control_setenv,
	(spank_t spank, const char *name, const char *value, int overwrite),
	(spank, name, value, overwrite), 0, ESPANK_ERROR)

/* A file system that answers no more: the program hangs where it is executed. */
int __real_execve(const char *path, char *const *argv, char *const *env);
int __wrap_execve(const char *path, char *const *argv, char *const *env);
int __wrap_execve(const char *path, char *const *argv, char *const *env)
{
	while (fails("execve"))
		pause();
	return __real_execve(path, argv, env);
}

/* Slurm says nothing of the step or the job. */
spank_err_t __wrap_spank_get_item(spank_t spank, spank_item_t name, void *a, void *b, void *c);
spank_err_t __real_spank_get_item(spank_t spank, spank_item_t name, ...);
spank_err_t __wrap_spank_get_item(spank_t spank, spank_item_t name, void *a, void *b, void *c)
{
	return fails("spank_get_item") ? ESPANK_ERROR : __real_spank_get_item(spank, name, a, b, c);
}
