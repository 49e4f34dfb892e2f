/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a job's service, with this very program as the service: how it is started, kept,
 * finished and, where it does not obey, killed. What the service does is chosen by the job's
 * number. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/clock.h"
#include "plugin/job_service.h"
#include "tests/unit/files.h"
#include "tests/unit/hang.h"

enum { ORDINARY = 1, LOSES, DEAF, ENDS_AT_ONCE, NOT_LISTENING, SLOW, WATCHES };

/* ---- the stand-in for muster-ckptd ---- */

static struct sockaddr_un address_of(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
	return address;
}

/* One client, and its end. */
static int serve(int argc, char **argv)
{
	int job = atoi(argv[4]);
	if (strcmp(argv[1], "--socket") || strcmp(argv[3], "--job") || strcmp(argv[5], "--syslog")
		|| job == ENDS_AT_ONCE)
		return 1;
	if (job == NOT_LISTENING)
		return (int)sleep(HANG_SECONDS);
	const int fd = 0; /* --bound */
	if (strcmp(argv[6], "--bound") || listen(fd, 5) < 0)
		return 1;
	while (job == WATCHES && access(argv[2], F_OK) == 0)
		usleep(20000);
	int client = job == WATCHES ? -1 : accept(fd, NULL, NULL);
	if (job == DEAF)
		return (int)sleep(HANG_SECONDS);
	if (job == SLOW)
		sleep(1);
	if (job == LOSES && write(client, "step 7 is lost\033[2J\nstep 8 too\n", 30) < 0)
		return 1;
	return 0;
}

static int finish(char **argv)
{
	char text[100];
	struct sockaddr_un address = address_of(argv[2]);
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	alarm((unsigned)atoi(argv[4]) + 1);
	signal(SIGALRM, SIG_DFL);
	if (connect(fd, (struct sockaddr *)&address, sizeof address) < 0)
		return puts("nobody listens"), 69;
	for (ssize_t n; (n = read(fd, text, sizeof text)) > 0;)
		if (write(1, text, (size_t)n) < 0)
			return 1;
	return 0;
}

/* ---- the tests ---- */

static char top[FILES_PATH_SIZE], run[FILES_PATH_SIZE + 10], program[FILES_PATH_SIZE + 10];
static char told[1000];
static struct err err;
static struct process service;

static struct job_service plan_of(uint32_t job, int attempt)
{
	bool root = geteuid() == 0;
	return (struct job_service) { .program = program,
		.run = run,
		.requeue = "/nonexistent/muster-requeue",
		.conf = "/etc/some.conf",
		.job = job,
		.attempt = attempt,
		.uid = root ? 65534 : geteuid(),
		.gid = root ? 65533 : getegid(),
		.drain = 1 };
}

static void say(void *arg, const char *line)
{
	size_t used = strlen(told);
	snprintf(told + used, sizeof told - used, "%s\n", line);
}

static int start(uint32_t job, int attempt)
{
	struct job_service plan = plan_of(job, attempt);
	told[0] = '\0';
	return job_service_start(&plan, &service, say, NULL, &err);
}

static int end_job(uint32_t job)
{
	struct job_service plan = plan_of(job, 0);
	told[0] = '\0';
	return job_service_finish(&plan, say, NULL, &err);
}

static void nothing_is_left(uint32_t job)
{
	assert_false(process_runs(&service));
	assert_int_equal(job_folder_exists(run, job, &err), 0);
}

/* The program is copied: an unprivileged user may not reach the build folder. */
static int begin(void **state)
{
	char command[4 * FILES_PATH_SIZE + 100];
	assert_int_equal(files_make_folder(top), 0);
	snprintf(run, sizeof run, "%s/run", top);
	snprintf(program, sizeof program, "%s/program", top);
	snprintf(command, sizeof command, "chmod 755 %s && cp /proc/%d/exe %s && chmod 755 %s", top,
		(int)getpid(), program, program);
	memset(&service, 0, sizeof service);
	return system(command);
}

static int end(void **state)
{
	process_kill(&service);
	return files_remove_folder(top);
}

/* A line of /proc/PID/status of the service, without its name. */
static const char *status_of(const char *name)
{
	static char line[300];
	char path[40];
	size_t length = strlen(name);
	snprintf(path, sizeof path, "/proc/%d/status", (int)service.pid);
	FILE *file = fopen(path, "re");
	assert_non_null(file);
	while (fgets(line, sizeof line, file))
		if (strncmp(line, name, length) == 0 && line[length] == ':') {
			fclose(file);
			line[strcspn(line, "\n")] = '\0';
			return line + length + 1 + strspn(line + length + 1, "\t ");
		}
	fclose(file);
	return "";
}

static void it_runs_with_nothing_of_its_starters(void **state)
{
	char path[60], link[100] = "", environment[200] = "";
	struct job_service plan = plan_of(ORDINARY, 0);
	assert_int_equal(start(ORDINARY, 0), 0);
	assert_true(process_runs(&service));
	assert_true(job_folder_has_socket(run, ORDINARY));
	assert_int_equal(getsid(service.pid), service.pid);
	assert_int_not_equal(atoi(status_of("PPid")), getpid());
	assert_int_equal(strtoul(status_of("Umask"), NULL, 8), 077);
	static const int ignored[] = { SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2 };
	unsigned long long mask = strtoull(status_of("SigIgn"), NULL, 16);
	for (size_t i = 0; i < sizeof ignored / sizeof ignored[0]; i++)
		assert_true(mask >> (ignored[i] - 1) & 1);
	for (int fd = 0; fd < 3; fd++) {
		snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)service.pid, fd);
		assert_true(readlink(path, link, sizeof link) > 0);
		assert_memory_equal(link, fd == 0 ? "socket:" : "/dev/nu",
			7); /* where it listens, and nothing */
	}
	snprintf(path, sizeof path, "/proc/%d/fd/3", (int)service.pid);
	assert_int_equal(readlink(path, link, sizeof link), -1);
	snprintf(path, sizeof path, "/proc/%d/environ", (int)service.pid);
	int fd = open(path, O_RDONLY);
	ssize_t size = read(fd, environment, sizeof environment - 1);
	close(fd);
	assert_int_equal(size, sizeof "PATH=/usr/bin:/bin\0SLURM_CONF=/etc/some.conf");
	if (geteuid() == 0) {
		static const char *const sets[] = { "CapInh", "CapPrm", "CapEff", "CapAmb" };
		for (size_t i = 0; i < 4; i++)
			assert_string_equal(status_of(sets[i]), "0000000000000000");
		assert_string_equal(status_of("Uid"), "65534\t65534\t65534\t65534");
		assert_string_equal(status_of("Gid"), "65533\t65533\t65533\t65533");
		assert_string_equal(status_of("NoNewPrivs"), "1");
	}
	assert_int_equal(job_service_finish(&plan, say, NULL, &err), 1);
	assert_string_equal(told, "");
	nothing_is_left(ORDINARY);
	assert_int_equal(end_job(ORDINARY), 0);
}

static void an_unknown_user_has_the_group_that_is_known(void **state)
{
	if (geteuid() != 0)
		skip();
	struct job_service plan = plan_of(ORDINARY, 0);
	plan.uid = 3999999999u;
	told[0] = '\0';
	assert_int_equal(job_service_start(&plan, &service, say, NULL, &err), 0);
	assert_non_null(strstr(told, "groups of user 3999999999"));
	assert_string_equal(status_of("Groups"), "65533 ");
	assert_int_equal(job_service_finish(&plan, say, NULL, &err), 1);
	plan.uid = 0;
	assert_int_equal(job_service_start(&plan, &service, say, NULL, &err), -1);
	nothing_is_left(ORDINARY);
}

static void one_of_this_attempt_is_kept_and_of_another_ended(void **state)
{
	assert_int_equal(start(ORDINARY, 0), 0);
	struct process first = service;
	assert_int_equal(start(ORDINARY, 0), 0);
	assert_int_equal(service.pid, first.pid);
	assert_int_equal(start(ORDINARY, 1), 0);
	assert_int_not_equal(service.pid, first.pid);
	assert_false(process_runs(&first));
	assert_true(process_runs(&service));
	/* A node that died: only the folder is left. */
	process_kill(&service);
	assert_true(process_wait(&service, HANG_SECONDS));
	assert_int_equal(start(ORDINARY, 1), 0);
	assert_true(process_runs(&service));
	assert_int_equal(end_job(ORDINARY), 1);
	nothing_is_left(ORDINARY);
}

static void what_is_lost_is_told(void **state)
{
	assert_int_equal(start(LOSES, 0), 0);
	assert_int_equal(end_job(LOSES), 1);
	assert_string_equal(told, "step 7 is lost?[2J\nstep 8 too\n");
	nothing_is_left(LOSES);
}

static void one_that_is_slow_is_waited_for(void **state)
{
	struct job_service plan = plan_of(SLOW, 0);
	plan.drain = HANG_SECONDS;
	assert_int_equal(start(SLOW, 0), 0);
	double begun = clock_now();
	told[0] = '\0';
	assert_int_equal(job_service_finish(&plan, say, NULL, &err), 1);
	assert_in_range((int)(clock_now() - begun), 1, HANG_SECONDS / 2);
	assert_string_equal(told, "");
	nothing_is_left(SLOW);
}

static void one_that_does_not_end_is_killed_after_the_drain(void **state)
{
	assert_int_equal(start(DEAF, 0), 0);
	double begun = clock_now();
	assert_int_equal(end_job(DEAF), 1);
	assert_true(clock_now() - begun < HANG_SECONDS / 2.0);
	assert_non_null(strstr(told, "did not end within 1 s (drain=) and is killed"));
	nothing_is_left(DEAF);
}

static void one_that_nobody_may_wait_for_is_killed_at_once(void **state)
{
	struct job_service plan = plan_of(SLOW, 0);
	plan.drain = -1;
	assert_int_equal(start(SLOW, 0), 0);
	told[0] = '\0';
	assert_int_equal(job_service_finish(&plan, say, NULL, &err), 1);
	assert_string_equal(told,
		"the service did not end within 0 s (drain=) and is killed\n"); /* and was not asked */
	nothing_is_left(SLOW);
}

static void a_job_without_one_has_its_folder_removed(void **state)
{
	assert_int_equal(job_folder_make(run, ORDINARY, &err), 0);
	assert_int_equal(end_job(ORDINARY), 0); /* no service has ended, and none is logged */
	assert_string_equal(told, "");
	assert_int_equal(job_folder_exists(run, ORDINARY, &err), 0);
}

static void one_without_its_socket_is_ended_too(void **state)
{
	char path[JOB_FOLDER_SOCKET_SIZE];
	assert_int_equal(start(ORDINARY, 0), 0);
	unlink(job_folder_socket(run, ORDINARY, path));
	assert_int_equal(end_job(ORDINARY), 1);
	assert_non_null(strstr(told, "nobody listens"));
	assert_non_null(strstr(told, "is killed"));
	nothing_is_left(ORDINARY);
}

static void one_that_cannot_be_asked_ends_when_its_folder_is_gone(void **state)
{
	struct job_service plan = plan_of(WATCHES, 0);
	plan.drain = HANG_SECONDS;
	assert_int_equal(start(WATCHES, 0), 0);
	plan.program = "/nonexistent/ckptd";
	double begun = clock_now();
	told[0] = '\0';
	assert_int_equal(job_service_finish(&plan, say, NULL, &err), 1);
	assert_true(clock_now() - begun < HANG_SECONDS / 2.0);
	assert_non_null(strstr(told, "couldn't start /nonexistent/ckptd"));
	assert_null(strstr(told, "killed"));
	nothing_is_left(WATCHES);
}

static void one_that_has_ended_is_told_and_no_other_process_is_touched(void **state)
{
	assert_int_equal(start(ORDINARY, 0), 0);
	process_kill(&service);
	assert_true(process_wait(&service, HANG_SECONDS));
	/* Its pid is another process's now. */
	struct job_note note = { { getpid(), 1 }, 0 };
	assert_int_equal(job_folder_write_note(run, ORDINARY, &note, &err), 0);
	assert_int_equal(end_job(ORDINARY), 1);
	assert_non_null(strstr(told, "had ended before its job"));
	nothing_is_left(ORDINARY);
}

static void one_that_does_not_start_leaves_nothing(void **state)
{
	static const struct {
		int job;
		const char *word;
	} cases[] = { { ENDS_AT_ONCE, "ended at once" }, { NOT_LISTENING, "does not listen after" } };
	for (size_t i = 0; i < 2; i++) {
		assert_int_equal(start((uint32_t)cases[i].job, 0), -1);
		assert_non_null(strstr(err.text, cases[i].word));
		nothing_is_left((uint32_t)cases[i].job);
	}
	struct job_service plan = plan_of(ORDINARY, 0);
	plan.program = "/nonexistent/ckptd";
	assert_int_equal(job_service_start(&plan, &service, say, NULL, &err), -1);
	assert_non_null(strstr(err.text, "couldn't start /nonexistent/ckptd"));
	nothing_is_left(ORDINARY);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(it_runs_with_nothing_of_its_starters, begin, end),
		cmocka_unit_test_setup_teardown(an_unknown_user_has_the_group_that_is_known, begin, end),
		cmocka_unit_test_setup_teardown(one_of_this_attempt_is_kept_and_of_another_ended, begin,
			end),
		cmocka_unit_test_setup_teardown(what_is_lost_is_told, begin, end),
		cmocka_unit_test_setup_teardown(one_that_is_slow_is_waited_for, begin, end),
		cmocka_unit_test_setup_teardown(one_that_does_not_end_is_killed_after_the_drain, begin,
			end),
		cmocka_unit_test_setup_teardown(one_that_nobody_may_wait_for_is_killed_at_once, begin, end),
		cmocka_unit_test_setup_teardown(a_job_without_one_has_its_folder_removed, begin, end),
		cmocka_unit_test_setup_teardown(one_without_its_socket_is_ended_too, begin, end),
		cmocka_unit_test_setup_teardown(one_that_cannot_be_asked_ends_when_its_folder_is_gone,
			begin, end),
		cmocka_unit_test_setup_teardown(one_that_has_ended_is_told_and_no_other_process_is_touched,
			begin, end),
		cmocka_unit_test_setup_teardown(one_that_does_not_start_leaves_nothing, begin, end),
	};
	if (argc == 5)
		return finish(argv);
	if (argc > 5)
		return serve(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
