/* SPDX-License-Identifier: Apache-2.0 */
/* gnuplot tells nobody when its output can't be written: so it draws into memory, and the bytes are
 * written from there. */
#include "config.h"

#include "runs/gnuplot.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/auto.h"
#include "common/io.h"
#include "common/spawn.h"

#define PROGRAM "/usr/bin/env"
#define DRAWING_LIMIT ((size_t)256 << 20)

static int start(pid_t *pid, int script, int drawing, int words)
{
	static char *const argv[] = { PROGRAM, "gnuplot", NULL };
	posix_spawn_file_actions_t actions;
	int why = posix_spawn_file_actions_init(&actions);
	if (why)
		return why;
	posix_spawn_file_actions_adddup2(&actions, script, STDIN_FILENO);
	posix_spawn_file_actions_adddup2(&actions, drawing, STDOUT_FILENO);
	posix_spawn_file_actions_adddup2(&actions, words, STDERR_FILENO);
	why = spawn_program(pid, PROGRAM, &actions, argv, 0);
	posix_spawn_file_actions_destroy(&actions);
	return why;
}

/* What a program has written into the memory file. */
static int read_memory(int fd, char **text, size_t *size, struct err *err)
{
	char name[64];
	snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
	return io_read_file(AT_FDCWD, name, DRAWING_LIMIT, text, size, err);
}

static int fail_with_words(int words, struct err *err)
{
	AUTO_FREE char *text = NULL;
	size_t size;
	if (read_memory(words, &text, &size, err) < 0)
		return -1;
	return err_set(err, "draw: gnuplot failed: %s", text + strspn(text, " \t\n"));
}

static int draw(int script, int drawing, int words, struct err *err)
{
	pid_t pid = -1;
	int status;
	errno = start(&pid, script, drawing, words);
	if (errno)
		return err_set(err, "draw: couldn't start gnuplot: %m");
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return err_set(err, "draw: couldn't wait for gnuplot: %m");
	if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
		return err_set(err,
			"draw: there is no gnuplot: install it (Debian's package is gnuplot-nox)");
	return status ? fail_with_words(words, err) : 0;
}

static int write_out(const char *path, const char *bytes, size_t size, struct err *err)
{
	if (!path)
		return io_write_full(STDOUT_FILENO, bytes, size) < 0
			? err_fail(err, io_status(errno), "couldn't write to standard output: %m")
			: 0;
	const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	if (fd < 0)
		return err_fail(err, io_status(errno), "couldn't write %s: %m", path);
	const bool failed = io_write_full(fd, bytes, size) < 0;
	const int why = errno;
	if (close(fd) == 0 && !failed)
		return 0;
	errno = failed ? why : errno;
	return err_fail(err, io_status(errno), "couldn't write %s: %m", path);
}

int gnuplot_draw(const char *script, const char *path, struct err *err)
{
	AUTO_CLOSE int input = memfd_create("gnuplot", MFD_CLOEXEC);
	AUTO_CLOSE int drawing = memfd_create("drawing", MFD_CLOEXEC);
	AUTO_CLOSE int words = memfd_create("words", MFD_CLOEXEC);
	AUTO_FREE char *bytes = NULL;
	size_t size;
	if (input < 0 || drawing < 0 || words < 0 || io_write_full(input, script, strlen(script)) < 0
		|| lseek(input, 0, SEEK_SET) < 0)
		return err_set(err, "draw: couldn't hold the script in memory: %m");
	if (draw(input, drawing, words, err) < 0 || read_memory(drawing, &bytes, &size, err) < 0)
		return -1;
	return write_out(path, bytes, size, err);
}
