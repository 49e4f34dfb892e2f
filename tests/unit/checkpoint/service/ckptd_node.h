/* SPDX-License-Identifier: Apache-2.0 */
/* muster-ckptd as a node's service in a test: its arguments, its socket, what it prints. Include
 * after cmocka.h. */
#ifndef MUSTER_CKPTD_NODE_H
#define MUSTER_CKPTD_NODE_H

#include <fcntl.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checkpoint/service/ckptd_control.h"
#include "common/auto.h"
#include "common/clock.h"
#include "common/io.h"
#include "tests/unit/checkpoint/service/ckptd_fixture.h"
#include "tests/unit/files.h"

extern char **environ;

/* Runs the program with these arguments (NULL ends them), its output going to the file; returns its
 * pid. */
static inline pid_t ckptd_node_start(const char *output, const char *const *arguments)
{
	char *argv[16] = { (char *)"muster-ckptd" };
	posix_spawn_file_actions_t actions;
	pid_t pid;
	int count = 1;
	while (arguments[count - 1]) {
		argv[count] = (char *)(uintptr_t)arguments[count - 1];
		count++;
	}
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 1, files_path(output), O_WRONLY | O_CREAT | O_TRUNC,
		0644);
	posix_spawn_file_actions_adddup2(&actions, 1, 2);
	assert_int_equal(posix_spawn(&pid, ckptd_program(), &actions, NULL, argv, environ), 0);
	posix_spawn_file_actions_destroy(&actions);
	return pid;
}

/* Waits for its end; returns its exit status. */
static inline int ckptd_node_end_of(pid_t pid)
{
	int status;
	CKPTD_UNTIL(waitpid(pid, &status, WNOHANG) == pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

#define CKPTD_START(output, ...) \
	ckptd_node_start(output, (const char *const[]) { __VA_ARGS__, NULL })
#define CKPTD_RUN(output, ...) ckptd_node_end_of(CKPTD_START(output, __VA_ARGS__))

/* Whether the file holds the text. */
static inline bool ckptd_node_says(const char *output, const char *text)
{
	AUTO_FREE char *found = NULL;
	size_t size;
	return io_read_file(AT_FDCWD, files_path(output), 1 << 20, &found, &size, NULL) == 0
		&& strstr(found, text);
}

/* A folder of mode 0700; the path of a socket in it, valid until the next call. */
static inline char *ckptd_node_folder(const char *name)
{
	static char path[500];
	snprintf(path, sizeof path, "%s/ckptd.sock", files_path(name));
	assert_int_equal(mkdir(files_path(name), 0700), 0);
	return path;
}

static inline bool ckptd_node_has(const char *path)
{
	struct stat st;
	return lstat(path, &st) == 0;
}

/* A service at the socket, of job 4711, that answers. */
static inline pid_t ckptd_node_service(const char *socket)
{
	pid_t pid = CKPTD_START("log", "--socket", socket, "--job", "4711", "--allow-root");
	struct err err;
	struct ckptd_message state;
	CKPTD_UNTIL(ckptd_control_status(socket, &state, &err) == 0);
	assert_int_equal(state.state.pid, pid);
	assert_string_equal(state.state.job, "4711");
	ckptd_message_release(&state);
	return pid;
}

#endif
