/* SPDX-License-Identifier: Apache-2.0 */
/* The folder of a job: its modes, whom it trusts, and that removing it touches nothing else,
 * whatever its user has put there. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "plugin/job_folder.h"
#include "tests/unit/files.h"

static char top[FILES_PATH_SIZE], run[FILES_PATH_SIZE + 10];
static struct err err;

/* As root, the user is another one. */
static uid_t user(void)
{
	return geteuid() == 0 ? 65534 : geteuid();
}

static gid_t group(void)
{
	return geteuid() == 0 ? 65533 : getegid();
}

static int begin(void **state)
{
	assert_int_equal(files_make_folder(top), 0);
	snprintf(run, sizeof run, "%s/run", top);
	umask(022);
	return 0;
}

static int end(void **state)
{
	char command[FILES_PATH_SIZE + 40];
	snprintf(command, sizeof command, "chmod -R u+rwx %s 2>/dev/null", top);
	if (system(command) == -1)
		return -1;
	return files_remove_folder(top);
}

static const char *below(const char *name)
{
	static char path[200];
	snprintf(path, sizeof path, "%s/%s", top, name);
	return path;
}

static void shell(const char *format)
{
	char command[600];
	snprintf(command, sizeof command, "cd %s && { %s; }", top, format);
	assert_int_equal(system(command), 0);
}

static void is_folder(const char *name, mode_t mode, uid_t uid)
{
	struct stat st;
	assert_int_equal(lstat(below(name), &st), 0);
	assert_int_equal(st.st_mode, S_IFDIR | mode);
	assert_int_equal(st.st_uid, uid);
}

static void its_modes_do_not_follow_the_umask(void **state)
{
	assert_int_equal(job_folder_exists(run, 7, &err), 0);
	umask(0);
	assert_int_equal(job_folder_make(run, 7, &err), 0);
	umask(077);
	assert_int_equal(job_folder_make(run, 8, &err), 0);
	is_folder("run", 0755, geteuid());
	is_folder("run/job-7", 0755, geteuid());
	is_folder("run/job-8", 0755, geteuid());
	is_folder("run/job-8/ckptd", 0755, geteuid());
	assert_int_equal(job_folder_exists(run, 7, &err), 1);
	assert_int_equal(job_folder_exists(run, 9, &err), 0);
	/* One that is there is not taken over. */
	assert_int_equal(job_folder_make(run, 7, &err), -1);
	assert_non_null(strstr(err.text, "File exists"));
}

static void its_socket_is_the_users_and_nothing_else(void **state)
{
	struct stat st;
	umask(0);
	assert_int_equal(job_folder_make(run, 7, &err), 0);
	assert_int_equal(job_folder_make(run, 8, &err), 0);
	assert_false(job_folder_has_socket(run, 7));
	int fd = job_folder_bind(run, 7, user(), group(), &err);
	assert_true(fd >= 0);
	close(fd);
	assert_true(job_folder_has_socket(run, 7));
	assert_int_equal(lstat(below("run/job-7/ckptd/socket"), &st), 0);
	assert_int_equal(st.st_mode, S_IFSOCK | 0600);
	assert_int_equal(st.st_uid, user());
	assert_int_equal(st.st_gid, group());
	is_folder("run/job-7/ckptd", 0755, geteuid());
	assert_int_equal(job_folder_bind(run, 7, user(), group(), &err), -1);
	assert_non_null(strstr(err.text, "Address already in use"));
	/* A name in a folder that others can change may become another file before it is given away. */
	shell("chmod 0777 run/job-8/ckptd");
	assert_int_equal(job_folder_bind(run, 8, user(), group(), &err), -1);
	shell("[ ! -e run/job-8/ckptd/socket ]");
}

static void a_run_that_was_made_by_half_is_completed(void **state)
{
	shell("mkdir -m 700 run");
	assert_int_equal(job_folder_make(run, 7, &err), 0);
	is_folder("run", 0755, geteuid());
}

static void a_run_that_others_can_change_is_refused(void **state)
{
	static const char *const faults[] = { "mkdir run && chmod 0777 run",
		"mkdir run && chmod 0775 run", "mkdir real && ln -s real run", "touch run",
		"mkdir run && chown 65534 run" };
	for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
		if (i == 4 && geteuid() != 0)
			continue;
		shell(faults[i]);
		assert_int_equal(job_folder_make(run, 7, &err), -1);
		assert_non_null(strstr(err.text, "/run"));
		shell("mkdir -p real/job-7; [ -L run ] || [ -f run ] || mkdir run/job-7");
		assert_int_equal(job_folder_exists(run, 7, &err), -1);
		assert_int_equal(job_folder_remove(run, 7, &err), -1);
		shell("[ -d real/job-7 ]; [ -L run ] || [ -f run ] || [ -d run/job-7 ]; rm -rf run real");
	}
}

static void a_job_folder_of_somebody_else_is_refused(void **state)
{
	shell("mkdir run real && ln -s ../real run/job-7");
	assert_int_equal(job_folder_exists(run, 7, &err), -1);
	assert_int_equal(job_folder_make(run, 7, &err), -1);
	/* The link itself may go. */
	assert_int_equal(job_folder_remove(run, 7, &err), 0);
	shell("[ -d real ] && [ ! -L run/job-7 ]");
}

static void removing_touches_nothing_else(void **state)
{
	assert_int_equal(job_folder_make(run, 7, &err), 0);
	shell("mkdir -p mine/deep && echo 1 >mine/deep/file && echo 2 >single && chmod 700 mine && cd "
		  "run/job-7/ckptd && ln -s ../../../mine folder-link && ln -s ../../../single link && ln "
		  "-s / root && ln ../../../single hard && mkdir -p a/b/c/d && touch a/b/c/d/e a/.hidden "
		  "&& mkfifo a/pipe && ln -s ../../../../mine a/up && ln -s nowhere gone");
	if (geteuid() == 0) /* who can go into a folder that is shut */
		shell("cd run/job-7/ckptd && mkdir shut && touch shut/in && chmod 000 shut");
	assert_int_equal(job_folder_remove(run, 7, &err), 0);
	assert_int_equal(job_folder_exists(run, 7, &err), 0);
	is_folder("run", 0755, geteuid());
	is_folder("mine", 0700, geteuid());
	is_folder("mine/deep", 0755, geteuid());
	shell("[ $(cat mine/deep/file)$(cat single) = 12 ]");
	/* None is left: no error. */
	assert_int_equal(job_folder_remove(run, 7, &err), 0);
}

static void one_that_is_too_deep_is_an_error(void **state)
{
	assert_int_equal(job_folder_make(run, 7, &err), 0);
	shell("cd run/job-7/ckptd && i=0 && while [ $i -lt 300 ]; do mkdir d && cd d && i=$((i+1)) || "
		  "exit 1; done");
	assert_int_equal(job_folder_remove(run, 7, &err), -1);
	assert_non_null(strstr(err.text, "couldn't remove"));
}

static void a_socket_is_one_and_no_link_to_one(void **state)
{
	char path[JOB_FOLDER_SOCKET_SIZE];
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	assert_int_equal(job_folder_make(run, 7, &err), 0);
	assert_false(job_folder_has_socket(run, 7));
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	snprintf(address.sun_path, sizeof address.sun_path, "%s/elsewhere", top);
	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
	close(fd);
	shell("ln -s ../../../elsewhere run/job-7/ckptd/socket");
	assert_false(job_folder_has_socket(run, 7));
	shell("mv elsewhere run/job-7/ckptd/socket");
	assert_true(job_folder_has_socket(run, 7));
	assert_string_equal(job_folder_socket(run, 7, path) + strlen(run), "/job-7/ckptd/socket");
	/* A user's folder that he has replaced. */
	shell("mv run/job-7/ckptd other && ln -s ../../other run/job-7/ckptd");
	assert_false(job_folder_has_socket(run, 7));
}

static void a_step_is_marked_by_the_user(void **state)
{
	job_folder_mark_step(run, 7); /* not a job of ours */
	assert_int_equal(job_folder_had_step(run, 7), -1);
	assert_int_equal(job_folder_make(run, 7, &err), 0);
	assert_int_equal(job_folder_had_step(run, 7), -1);
	close(job_folder_bind(run, 7, user(), group(), &err));
	assert_int_equal(job_folder_had_step(run, 7), 0);
	job_folder_mark_step(run, 8);
	assert_int_equal(job_folder_had_step(run, 7), 0);
	/* As the user himself. */
	pid_t pid = fork();
	if (pid == 0) {
		chmod(top, 0755);
		if (geteuid() == 0 && setuid(user()) < 0)
			_exit(1);
		job_folder_mark_step(run, 7);
		job_folder_mark_step(run, 7);
		_exit(0);
	}
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(job_folder_had_step(run, 7), 1);
	assert_true(job_folder_has_socket(run, 7));
	assert_int_equal(job_folder_remove(run, 7, &err), 0);
	assert_int_equal(job_folder_had_step(run, 7), -1);
}

static void a_note_comes_back_and_a_wrong_one_does_not(void **state)
{
	struct job_note note = { { 123, 45678901234567ULL }, 3 }, back;
	assert_int_equal(job_folder_write_note(run, 7, &note, &err), -1);
	assert_int_equal(job_folder_make(run, 7, &err), 0);
	assert_false(job_folder_read_note(run, 7, &back));
	assert_int_equal(job_folder_write_note(run, 7, &note, &err), 0);
	assert_true(job_folder_read_note(run, 7, &back));
	assert_int_equal(back.service.pid, 123);
	assert_int_equal(back.service.start, 45678901234567ULL);
	assert_int_equal(back.attempt, 3);
	shell("echo pid 12 start >run/job-7/service");
	assert_false(job_folder_read_note(run, 7, &back));
	shell("mv run/job-7/service other && ln -s ../../other run/job-7/service");
	assert_false(job_folder_read_note(run, 7, &back));
}

static void a_word_for_all_jobs_is_root_s(void **state)
{
	char text[20];
	assert_int_equal(job_folder_write_for_all(run, "word", NULL, &err), 0); /* nothing to remove */
	assert_false(job_folder_read_for_all(run, "word", text, sizeof text));
	assert_int_equal(job_folder_write_for_all(run, "word", "first\n", &err), 0);
	assert_int_equal(job_folder_write_for_all(run, "word", "second\n", &err), 0);
	assert_true(job_folder_read_for_all(run, "word", text, sizeof text));
	assert_string_equal(text, "second\n");
	/* A link is no word of root's, and the next word takes its place. */
	shell("echo other >other && rm run/word && ln -s ../other run/word");
	assert_false(job_folder_read_for_all(run, "word", text, sizeof text));
	assert_int_equal(job_folder_write_for_all(run, "word", "third\n", &err), 0);
	assert_true(job_folder_read_for_all(run, "word", text, sizeof text));
	shell("grep -qx other other && [ $(ls -A run | wc -l) = 1 ]");
	assert_int_equal(job_folder_write_for_all(run, "word", NULL, &err), 0);
	assert_false(job_folder_read_for_all(run, "word", text, sizeof text));
	shell("chmod 777 run && echo bad >run/word");
	assert_false(job_folder_read_for_all(run, "word", text, sizeof text));
	assert_int_equal(job_folder_write_for_all(run, "word", "fourth\n", &err), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(its_modes_do_not_follow_the_umask, begin, end),
		cmocka_unit_test_setup_teardown(its_socket_is_the_users_and_nothing_else, begin, end),
		cmocka_unit_test_setup_teardown(a_run_that_was_made_by_half_is_completed, begin, end),
		cmocka_unit_test_setup_teardown(a_run_that_others_can_change_is_refused, begin, end),
		cmocka_unit_test_setup_teardown(a_job_folder_of_somebody_else_is_refused, begin, end),
		cmocka_unit_test_setup_teardown(removing_touches_nothing_else, begin, end),
		cmocka_unit_test_setup_teardown(one_that_is_too_deep_is_an_error, begin, end),
		cmocka_unit_test_setup_teardown(a_socket_is_one_and_no_link_to_one, begin, end),
		cmocka_unit_test_setup_teardown(a_step_is_marked_by_the_user, begin, end),
		cmocka_unit_test_setup_teardown(a_note_comes_back_and_a_wrong_one_does_not, begin, end),
		cmocka_unit_test_setup_teardown(a_word_for_all_jobs_is_root_s, begin, end),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
