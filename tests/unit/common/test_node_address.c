/* SPDX-License-Identifier: Apache-2.0 */
/* node_address: names that resolve, and names that only Slurm knows, with a scontrol of the test's
 * own. */
#include "config.h"

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
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/auto.h"
#include "common/io.h"
#include "common/node_address.h"
#include "tests/unit/files.h"

int __real_getaddrinfo(const char *node, const char *port, const struct addrinfo *hints,
	struct addrinfo **found);
int __wrap_getaddrinfo(const char *node, const char *port, const struct addrinfo *hints,
	struct addrinfo **found);

/* No name service is asked. */
int __wrap_getaddrinfo(const char *node, const char *port, const struct addrinfo *hints,
	struct addrinfo **found)
{
	struct addrinfo numeric = *hints;
	numeric.ai_flags |= AI_NUMERICHOST;
	return __real_getaddrinfo(strcmp(node, "localhost") == 0 ? "127.0.0.1" : node, port, &numeric,
		found);
}

/* As scontrol prints it (22.05), and counts how often it was asked. */
static void write_scontrol(void)
{
	char script[2000];
	snprintf(script, sizeof script,
		"#!/bin/sh\necho \"$*\" >>%s\ncat <<'END'\n"
		"NodeName=far-1 Arch=x86_64 CPUAlloc=0 NodeAddr=10.77.0.11 NodeHostName=far-1 "
		"Version=22.05.8 Comment=NodeName=far-9\n"
		"NodeName=far-10 Arch=x86_64 NodeAddr=10.77.0.20 NodeHostName=far-10 OS=Linux 6.1 "
		"NodeAddr=no \n"
		"NodeName=far-2 Reason=NodeAddr=10.0.0.1 [root@now] NodeAddr=fd77::12 NodeHostName=far-2\n"
		"NodeName=far-3 NodeAddr=far-3 NodeHostName=far-3\nEND\n",
		files_path("asked"));
	assert_int_equal(chmod(files_write("scontrol", script, strlen(script)), 0755), 0);
}

/* "" where there is none. In a process of its own, since what was answered is remembered. */
static void resolves(const char *const *names, const char *const *addresses, size_t count)
{
	const struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
	pid_t pid = fork();
	for (size_t i = 0; pid == 0 && i < count; i++) {
		struct addrinfo *found = NULL;
		char digits[NI_MAXHOST] = "";
		if (node_address(names[i], "7", &hints, &found) == 0) {
			getnameinfo(found->ai_addr, found->ai_addrlen, digits, sizeof digits, NULL, 0,
				NI_NUMERICHOST);
			freeaddrinfo(found);
		}
		if (strcmp(digits, addresses[i]) != 0) {
			print_message("%s: %s, not %s\n", names[i], digits, addresses[i]);
			_exit(1);
		}
	}
	if (pid == 0)
		_exit(0);
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

#define RESOLVES(...) \
	do { \
		const char *const pairs[][2] = { __VA_ARGS__ }, *names[sizeof pairs / sizeof pairs[0]], \
						  *addresses[sizeof pairs / sizeof pairs[0]]; \
		for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) { \
			names[i] = pairs[i][0]; \
			addresses[i] = pairs[i][1]; \
		} \
		resolves(names, addresses, sizeof pairs / sizeof pairs[0]); \
	} while (0)

static const char *asked(void)
{
	static char text[1000];
	AUTO_FREE char *found = NULL;
	size_t size;
	text[0] = '\0';
	if (io_read_file(AT_FDCWD, files_path("asked"), sizeof text - 1, &found, &size, NULL) == 0)
		snprintf(text, sizeof text, "%s", found);
	return text;
}

static int set_up(void **state)
{
	char path[5000];
	if (files_setup(state) < 0)
		return -1;
	snprintf(path, sizeof path, "%s:%s", files_dir, getenv("PATH"));
	setenv("PATH", path, 1);
	setenv("SLURM_STEP_NODELIST", "far-[1-3,10]", 1);
	unsetenv("SLURM_JOB_NODELIST");
	write_scontrol();
	return 0;
}

static void a_name_that_resolves_is_not_asked_for(void **state)
{
	RESOLVES({ "localhost", "127.0.0.1" }, { "127.0.0.1", "127.0.0.1" });
	assert_string_equal(asked(), "");
}

static void slurm_s_word_is_taken_for_what_does_not_resolve(void **state)
{
	RESOLVES({ "far-1", "10.77.0.11" }, { "far-10", "10.77.0.20" }, { "far-2", "fd77::12" },
		{ "far-3", "" }, { "far-4", "" }, { "far", "" }, { "far-9", "" });
	assert_string_equal(asked(), "-o show node far-[1-3,10]\n");
}

static void outside_slurm_nobody_is_asked(void **state)
{
	unsetenv("SLURM_STEP_NODELIST");
	RESOLVES({ "far-1", "" });
	assert_string_equal(asked(), "");
	/* In a batch script. */
	setenv("SLURM_JOB_NODELIST", "far-1", 1);
	RESOLVES({ "far-1", "10.77.0.11" });
	assert_string_equal(asked(), "-o show node far-1\n");
}

/* A controller that is away is not asked about each name. */
static void an_answer_that_is_none(void **state)
{
	const char script[] = "#!/bin/sh\necho asked >>\"${0%/*}/asked\"\necho slurm_load_node error: "
						  "Unable to contact slurm controller\nexit 1\n";
	files_write("scontrol", script, sizeof script - 1);
	RESOLVES({ "far-1", "" }, { "far-2", "" }, { "far-1", "" });
	assert_string_equal(asked(), "asked\n");
	unlink(files_path("scontrol"));
	unlink(files_path("asked"));
	setenv("PATH", files_dir, 1);
	RESOLVES({ "far-1", "" });
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, files_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_name_that_resolves_is_not_asked_for),
		TEST(slurm_s_word_is_taken_for_what_does_not_resolve),
		TEST(outside_slurm_nobody_is_asked),
		TEST(an_answer_that_is_none),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
