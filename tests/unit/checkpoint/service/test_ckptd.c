/* SPDX-License-Identifier: Apache-2.0 */
/* ckptd_client and the service that it starts: what was handed over is durable whichever process
 * dies, and what can't be saved is said. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/clock.h"
#include "tests/unit/checkpoint/service/ckptd_fixture.h"
#include "tests/unit/files.h"

#define LARGE (96u << 20) /* takes long enough to be killed in between */

/* Services outlive those who started them, and come to us then. */
static void reap(pid_t pid)
{
	int status;
	CKPTD_UNTIL(waitpid(pid, &status, WNOHANG) != 0);
}

static void what_is_handed_over_comes_back(void **state)
{
	struct ckptd_fixture fixture;
	struct err err;
	ckptd_fixture_make(&fixture, files_path("back"), 3 << 20, 0, 1, NULL);
	fixture.plan.retention.keep_last = 2;
	ckptd_fixture_open(&fixture);
	assert_string_equal(ckptd_client_address(fixture.client), "");
	for (int64_t step = 1; step <= 5; step++)
		ckptd_fixture_save(&fixture, step);
	ckptd_fixture_await_durable(&fixture, 5);
	for (int64_t step = 1; step <= 5; step++)
		assert_int_equal(ckptd_fixture_events(&fixture, CKPTD_DURABLE, step), 1);
	ckptd_fixture_check(&fixture, 4);
	ckptd_fixture_check(&fixture, 5);
	CKPTD_UNTIL(!ckptd_fixture_has(&fixture, 3));
	assert_int_equal(fixture.count, 5);
	assert_true(fixture.events[4].bytes > 3 << 20 && fixture.events[4].seconds > 0);
	assert_int_equal(ckptd_client_wait(fixture.client, 6, 0, &err), -1);
	ckptd_fixture_end(&fixture);
}

static void a_buffer_is_handed_over_once(void **state)
{
	struct ckptd_fixture fixture;
	struct snapshot snapshot = { .at.step = 1 };
	struct err err;
	ckptd_fixture_make(&fixture, files_path("once"), 0, 0, 1, NULL);
	ckptd_fixture_open(&fixture);
	kill((pid_t)ckptd_client_service(fixture.client), SIGSTOP);
	ckptd_fixture_save(&fixture, 1);
	assert_int_equal(ckptd_client_save(fixture.client, 0, &snapshot, &err), -1);
	assert_int_equal(ckptd_client_save(fixture.client, 2, &snapshot, &err), -1);
	assert_int_equal(ckptd_client_save(fixture.client, -1, &snapshot, &err), -1);
	/* Beside a live buffer: not while that one is handed over, and never that one. */
	assert_int_equal(ckptd_client_buffer(fixture.client, 0, 0.05), -1);
	assert_int_equal(ckptd_client_buffer(fixture.client, 1, 0.05), -1);
	ckptd_fixture_save(&fixture, 2);
	assert_int_equal(ckptd_client_buffer(fixture.client, -1, 0.05), -1);
	assert_int_equal(ckptd_client_wait(fixture.client, 1, 0.05, &err), -1);
	assert_int_equal(err.status, EXIT_LOST);
	kill((pid_t)ckptd_client_service(fixture.client), SIGCONT);
	assert_int_equal(ckptd_client_wait(fixture.client, 2, HANG_SECONDS, &err), 0);
	assert_int_equal(ckptd_client_buffer(fixture.client, 0, 0), 1);
	assert_int_equal(ckptd_client_buffer(fixture.client, 1, 0), 0);
	ckptd_fixture_end(&fixture);
}

static bool has_memory;

static bool may_fill(void *arg, int buffer)
{
	return buffer == 0 || has_memory;
}

static void a_buffer_without_memory_is_none(void **state)
{
	struct ckptd_fixture fixture;
	struct err err;
	ckptd_fixture_make(&fixture, files_path("memory"), 0, 0, 1, NULL);
	fixture.plan.may_fill = may_fill;
	ckptd_fixture_open(&fixture);
	assert_int_equal(ckptd_client_buffer(fixture.client, 0, 0.05), -1);
	kill((pid_t)ckptd_client_service(fixture.client), SIGSTOP);
	ckptd_fixture_save(&fixture, 1);
	assert_int_equal(ckptd_client_buffer(fixture.client, -1, 0.05), -1);
	has_memory = true;
	assert_int_equal(ckptd_client_buffer(fixture.client, -1, HANG_SECONDS), 1);
	has_memory = false;
	kill((pid_t)ckptd_client_service(fixture.client), SIGCONT);
	assert_int_equal(ckptd_client_wait(fixture.client, 1, HANG_SECONDS, &err), 0);
	assert_int_equal(ckptd_client_buffer(fixture.client, -1, HANG_SECONDS), 0);
	ckptd_fixture_end(&fixture);
}

static void modes_are_those_of_the_client(void **state)
{
	struct ckptd_fixture fixture;
	struct stat st;
	mode_t old = umask(027);
	ckptd_fixture_make(&fixture, files_path("modes"), 0, 0, 1, NULL);
	ckptd_fixture_open(&fixture);
	umask(old);
	ckptd_fixture_durable(&fixture, 1);
	assert_int_equal(stat(files_path("modes/step-00000001"), &st), 0);
	assert_int_equal(st.st_mode & 0777, 0750);
	assert_int_equal(stat(files_path("modes/step-00000001/manifest.json"), &st), 0);
	assert_int_equal(st.st_mode & 0777, 0640);
	ckptd_fixture_end(&fixture);
}

/* One value of /proc/PID/status. */
static unsigned long long status_of(pid_t pid, const char *name)
{
	char path[60], line[256];
	unsigned long long value = 0;
	snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
	FILE *status = fopen(path, "r");
	assert_non_null(status);
	while (fgets(line, sizeof line, status))
		if (strncmp(line, name, strlen(name)) == 0)
			value = strtoull(line + strlen(name) + 1, NULL, 16);
	fclose(status);
	return value;
}

static int descriptors_of(pid_t pid)
{
	char path[60];
	int count = 0;
	snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
	DIR *folder = opendir(path);
	assert_non_null(folder);
	while (readdir(folder))
		count++;
	closedir(folder);
	return count - 2;
}

static void a_service_inherits_nothing(void **state)
{
	static const int ignored[] = { SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGPIPE };
	struct ckptd_fixture fixture;
	sigset_t all, old;
	int leaked[40];
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	for (int i = 0; i < 40; i++)
		leaked[i] = dup(0);
	ckptd_fixture_make(&fixture, files_path("nothing"), 0, 0, 1, NULL);
	ckptd_fixture_open(&fixture);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pid_t service = (pid_t)ckptd_client_service(fixture.client);
	assert_int_equal(status_of(service, "SigBlk:"), 0);
	for (size_t i = 0; i < sizeof ignored / sizeof ignored[0]; i++)
		assert_true(status_of(service, "SigIgn:") >> (ignored[i] - 1) & 1);
	assert_int_equal(getpgid(service), service);
	/* The standard streams, the connection, an eventfd, the directory and the two buffers: who runs
	 * as root may look. */
	if (geteuid() == 0)
		assert_int_equal(descriptors_of(service), 8);
	for (int i = 0; i < 40; i++)
		close(leaked[i]);
	ckptd_fixture_end(&fixture);
}

/* A trainer in a process of its own, which kills itself with the signal: before it hands step 2
 * over, or right after it. The service's pid is what it leaves. */
static pid_t die(struct ckptd_fixture *fixture, int by, bool before)
{
	int ends[2];
	pid_t service;
	assert_int_equal(pipe(ends), 0);
	pid_t pid = fork();
	if (pid == 0) {
		signal(SIGSEGV, SIG_DFL); /* cmocka's would go on with the next test */
		ckptd_fixture_open(fixture);
		ckptd_fixture_durable(fixture, 1);
		service = (pid_t)ckptd_client_service(fixture->client);
		if (write(ends[1], &service, sizeof service) < 0 || ckptd_fixture_fill(fixture, 2) < 0
			|| before)
			kill(getpid(), by);
		ckptd_fixture_save(fixture, 2);
		kill(getpid(), by);
		_exit(0);
	}
	close(ends[1]);
	assert_int_equal(read(ends[0], &service, sizeof service), sizeof service);
	close(ends[0]);
	reap(pid);
	return service;
}

static void a_dead_trainer_loses_nothing_that_it_handed_over(void **state)
{
	static const int signals[] = { SIGKILL, SIGSEGV, SIGABRT };
	struct ckptd_fixture fixture;
	for (size_t i = 0; i < 3; i++) {
		ckptd_fixture_make(&fixture, files_path("after"), LARGE / 4, 0, 1, NULL);
		reap(die(&fixture, signals[i], false));
		ckptd_fixture_check(&fixture, 1);
		ckptd_fixture_check(&fixture, 2);
		assert_false(ckptd_fixture_saving(&fixture, 2));
		ckptd_fixture_end(&fixture);
		nftw(files_path("after"), files_remove_one, 16, FTW_DEPTH | FTW_PHYS);
	}
	ckptd_fixture_make(&fixture, files_path("before"), LARGE / 4, 0, 1, NULL);
	reap(die(&fixture, SIGKILL, true));
	ckptd_fixture_check(&fixture, 1);
	assert_false(ckptd_fixture_has(&fixture, 2));
	ckptd_fixture_end(&fixture);
}

static void a_dead_service_is_replaced_in_mid_save(void **state)
{
	struct ckptd_fixture fixture;
	ckptd_fixture_make(&fixture, files_path("replaced"), LARGE, 0, 1, NULL);
	ckptd_fixture_open(&fixture);
	int64_t first = ckptd_client_service(fixture.client);
	ckptd_fixture_save(&fixture, 1);
	ckptd_fixture_save(&fixture, 2);
	CKPTD_UNTIL(ckptd_fixture_saving(&fixture, 1) || ckptd_fixture_saving(&fixture, 2));
	kill((pid_t)first, SIGKILL);
	ckptd_fixture_await_durable(&fixture, 2);
	const char *text = ckptd_fixture_await(&fixture, CKPTD_RESTARTED, -1);
	assert_non_null(strstr(text, "was killed by signal 9"));
	assert_true(ckptd_client_service(fixture.client) != first);
	ckptd_fixture_check(&fixture, 1);
	ckptd_fixture_check(&fixture, 2);
	assert_int_equal(ckptd_fixture_events(&fixture, CKPTD_DURABLE, 1), 1);
	assert_int_equal(ckptd_fixture_events(&fixture, CKPTD_FAILED, -1), 0);
	/* Idle, too. */
	kill((pid_t)ckptd_client_service(fixture.client), SIGKILL);
	CKPTD_UNTIL(ckptd_fixture_events(&fixture, CKPTD_RESTARTED, -1) == 2);
	ckptd_fixture_durable(&fixture, 3);
	ckptd_fixture_end(&fixture);
}

/* Holds back from its parent that the process has ended, as threads do that end late. 0 where it
 * may not be traced. */
static pid_t hold_end_of(pid_t process)
{
	int ends[2];
	char traces = 0;
	siginfo_t info;
	assert_int_equal(pipe(ends), 0);
	pid_t pid = fork();
	if (pid == 0) {
		traces = ptrace(PTRACE_SEIZE, process, NULL, NULL) == 0;
		if (write(ends[1], &traces, 1) == 1 && traces) {
			waitid(P_PID, (id_t)process, &info, WEXITED | WNOWAIT);
			usleep(600000);
		}
		_exit(0);
	}
	assert_int_equal(read(ends[0], &traces, 1), 1);
	close(ends[0]);
	close(ends[1]);
	if (!traces)
		reap(pid);
	return traces ? pid : 0;
}

static void a_service_that_ends_late_is_waited_for(void **state)
{
	struct ckptd_fixture fixture;
	ckptd_fixture_make(&fixture, files_path("late"), 0, 0, 1, NULL);
	ckptd_fixture_open(&fixture);
	pid_t service = (pid_t)ckptd_client_service(fixture.client), holder = hold_end_of(service);
	if (holder) {
		kill(service, SIGKILL);
		const char *text = ckptd_fixture_await(&fixture, CKPTD_RESTARTED, -1);
		assert_non_null(strstr(text, "was killed by signal 9"));
		reap(holder);
	}
	ckptd_fixture_end(&fixture);
	if (!holder)
		skip(); /* only root may trace a service */
}

/* Services can't be started for a while: what was handed over waits for one, and what is new is
 * refused. */
static void a_service_that_cant_be_replaced_is_looked_for_again(void **state)
{
	struct ckptd_fixture fixture;
	struct err err;
	ckptd_fixture_make(&fixture, files_path("gone"), LARGE, 0, 1, NULL);
	ckptd_fixture_open(&fixture);
	setenv("MUSTER_CKPTD_PROGRAM", "/nonexistent/muster-ckptd", 1);
	ckptd_fixture_save(&fixture, 1);
	CKPTD_UNTIL(ckptd_fixture_saving(&fixture, 1));
	kill((pid_t)ckptd_client_service(fixture.client), SIGKILL);
	ckptd_fixture_await(&fixture, CKPTD_GONE, -1);
	int buffer = ckptd_fixture_fill(&fixture, 2);
	const struct snapshot snapshot = ckptd_fixture_describe(&fixture, buffer, 2);
	assert_int_equal(ckptd_client_save(fixture.client, buffer, &snapshot, &err), -1);
	assert_non_null(strstr(err.text, "/nonexistent"));
	assert_int_equal(ckptd_client_wait(fixture.client, 1, 0.01, &err), -1);
	assert_int_equal(ckptd_client_buffer(fixture.client, -1, 0), buffer);
	assert_int_equal(ckptd_fixture_events(&fixture, CKPTD_GONE, -1), 1);
	ckptd_program();
	ckptd_fixture_durable(&fixture, 2);
	ckptd_fixture_check(&fixture, 1);
	ckptd_fixture_check(&fixture, 2);
	assert_int_equal(ckptd_fixture_events(&fixture, CKPTD_RESTARTED, -1), 1);
	ckptd_fixture_end(&fixture);
}

static void kill_service(struct ckptd_fixture *fixture, const struct ckptd_event *event)
{
	if (event->type == CKPTD_RESTARTED)
		kill((pid_t)ckptd_client_service(fixture->client), SIGKILL);
}

static void services_that_die_one_after_the_other_end_the_save(void **state)
{
	struct ckptd_fixture fixture;
	struct err err;
	ckptd_fixture_make(&fixture, files_path("loop"), LARGE, 0, 1, NULL);
	ckptd_fixture_also(&fixture, kill_service);
	ckptd_fixture_open(&fixture);
	ckptd_fixture_save(&fixture, 1);
	kill((pid_t)ckptd_client_service(fixture.client), SIGKILL);
	assert_int_equal(ckptd_client_wait(fixture.client, 1, HANG_SECONDS, &err), -1);
	assert_non_null(strstr(err.text, "3 services in a row"));
	ckptd_fixture_await(&fixture, CKPTD_GONE, -1);
	assert_int_equal(ckptd_fixture_events(&fixture, CKPTD_RESTARTED, -1), 2);
	assert_int_equal(ckptd_fixture_events(&fixture, CKPTD_FAILED, 1), 1);
	ckptd_fixture_also(&fixture, NULL);
	ckptd_fixture_durable(&fixture, 2);
	ckptd_fixture_end(&fixture);
}

static void another_owner_ends_a_save(void **state)
{
	struct ckptd_fixture fixture, other;
	struct err err;
	ckptd_fixture_make(&fixture, files_path("owner"), 0, 0, 1, NULL);
	ckptd_fixture_open(&fixture);
	ckptd_fixture_durable(&fixture, 1);
	assert_int_equal(owner_release(&fixture.dir, fixture.token, &err), 0);
	ckptd_fixture_make(&other, files_path("owner"), 0, 0, 1, NULL);
	ckptd_fixture_save(&fixture, 2);
	ckptd_fixture_await(&fixture, CKPTD_FAILED, 2);
	assert_int_equal(ckptd_client_wait(fixture.client, 2, 0, &err), -1);
	assert_int_equal(err.status, EXIT_FAULT);
	assert_false(ckptd_fixture_has(&fixture, 2));
	ckptd_fixture_end(&other);
	ckptd_fixture_end(&fixture);
}

static void a_full_disk_is_said_and_outlived(void **state)
{
	struct ckptd_fixture fixture;
	struct err err;
	const char *path = files_path("full");
	assert_int_equal(mkdir(path, 0755), 0);
	if (mount("tmpfs", path, "tmpfs", 0, "size=6m") < 0) {
		print_message("couldn't mount a small disk: %s\n", strerror(errno));
		skip();
	}
	ckptd_fixture_make(&fixture, path, 4 << 20, 0, 1, NULL);
	fixture.plan.retention.keep_last = 1;
	ckptd_fixture_open(&fixture);
	ckptd_fixture_durable(&fixture, 1);
	ckptd_fixture_save(&fixture, 2);
	assert_int_equal(ckptd_client_wait(fixture.client, 2, HANG_SECONDS, &err), -1);
	assert_int_equal(err.status, EXIT_LOST);
	assert_non_null(strstr(err.text, "No space left"));
	assert_int_equal(ckptd_fixture_events(&fixture, CKPTD_FAILED, 2), 1);
	assert_false(ckptd_fixture_saving(&fixture, 2));
	ckptd_fixture_check(&fixture, 1);
	mount("tmpfs", path, "tmpfs", MS_REMOUNT, "size=20m");
	ckptd_fixture_durable(&fixture, 3);
	ckptd_fixture_check(&fixture, 3);
	ckptd_fixture_end(&fixture);
	umount2(path, MNT_DETACH);
}

/* A limit of the user's, whose signal would end the service. */
static void a_file_that_may_not_grow_is_said_and_outlived(void **state)
{
	struct ckptd_fixture fixture;
	struct err err;
	ckptd_fixture_make(&fixture, files_path("limit"), 4 << 20, 0, 1, NULL);
	ckptd_fixture_open(&fixture);
	pid_t service = (pid_t)ckptd_client_service(fixture.client);
	struct rlimit limit = { 1 << 20, RLIM_INFINITY }, none = { RLIM_INFINITY, RLIM_INFINITY };
	assert_int_equal(prlimit(service, RLIMIT_FSIZE, &limit, NULL), 0);
	ckptd_fixture_save(&fixture, 1);
	assert_int_equal(ckptd_client_wait(fixture.client, 1, HANG_SECONDS, &err), -1);
	assert_non_null(strstr(err.text, "File too large"));
	assert_int_equal(prlimit(service, RLIMIT_FSIZE, &none, NULL), 0);
	ckptd_fixture_durable(&fixture, 2);
	assert_int_equal(ckptd_client_service(fixture.client), service);
	ckptd_fixture_check(&fixture, 2);
	ckptd_fixture_end(&fixture);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_handed_over_comes_back),
		cmocka_unit_test(a_buffer_is_handed_over_once),
		cmocka_unit_test(a_buffer_without_memory_is_none),
		cmocka_unit_test(modes_are_those_of_the_client),
		cmocka_unit_test(a_service_inherits_nothing),
		cmocka_unit_test(a_dead_trainer_loses_nothing_that_it_handed_over),
		cmocka_unit_test(a_dead_service_is_replaced_in_mid_save),
		cmocka_unit_test(a_service_that_ends_late_is_waited_for),
		cmocka_unit_test(a_service_that_cant_be_replaced_is_looked_for_again),
		cmocka_unit_test(services_that_die_one_after_the_other_end_the_save),
		cmocka_unit_test(another_owner_ends_a_save),
		cmocka_unit_test(a_full_disk_is_said_and_outlived),
		cmocka_unit_test(a_file_that_may_not_grow_is_said_and_outlived),
	};
	unsetenv("MUSTER_CKPTD");
	ckptd_program();
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	return cmocka_run_group_tests(tests, files_setup, files_teardown);
}
