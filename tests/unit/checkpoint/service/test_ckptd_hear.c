/* SPDX-License-Identifier: Apache-2.0 */
/* Part 0's ear among thousands: strangers that say nothing, and as many parts as come, with as few
 * descriptors as there are. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "checkpoint/format/manifest.h"
#include "checkpoint/protocol/ckptd_conn.h"
#include "checkpoint/protocol/ckptd_socket.h"
#include "checkpoint/protocol/ckptd_tcp.h"
#include "common/auto.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/listen.h"
#include "tests/unit/checkpoint/service/ckptd_node.h"

#define OTHER_USER 65534
#define CROWD 20              /* processes */
#define CROWD_CONNECTIONS 500 /* of each */
#define PARTS 2048
#define FEW 256 /* descriptors */

static int dial(const struct ckptd_address *address)
{
	struct sockaddr_storage to;
	socklen_t size;
	if (ckptd_tcp_address(address->host, address->port, &to, &size, NULL) < 0)
		return -1;
	int fd = socket(to.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&to, size) < 0) {
		close(fd);
		return -1;
	}
	return fd;
}

static struct ckptd_address address_of(const struct ckptd_fixture *part0)
{
	struct ckptd_address address;
	assert_int_equal(ckptd_address_parse(ckptd_client_address(part0->client), &address, NULL), 0);
	return address;
}

static void wait_durable(struct ckptd_fixture *part0, int64_t step)
{
	struct err err;
	if (ckptd_client_wait(part0->client, step, HANG_SECONDS, &err) < 0)
		fail_msg("%s", err.text);
	ckptd_fixture_check(part0, step);
}

/* ---- strangers ---- */

/* One process of them, of another user where that can be: some connections say nothing, some half a
 * word. */
static _Noreturn void be_strangers(const struct ckptd_address *address, int word)
{
	if (geteuid() == 0 && (setgid(OTHER_USER) < 0 || setuid(OTHER_USER) < 0))
		_exit(1);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (int i = 0; i < CROWD_CONNECTIONS; i++) {
		int fd = dial(address);
		if (fd < 0)
			_exit(1);
		if (i % 3 == 0)
			(void)!send(fd, "MCKD", 4, MSG_NOSIGNAL);
	}
	(void)!write(word, "c", 1);
	for (;;)
		pause();
}

static void ten_thousand_strangers_lose_no_save(void **state)
{
	struct ckptd_fixture a, b;
	char first[200], words[CROWD];
	pid_t crowd[CROWD];
	int ends[2];
	ckptd_fixture_make(&a, files_path("crowd"), 0, 0, 2, NULL);
	ckptd_fixture_open(&a);
	const struct ckptd_address address = address_of(&a);
	assert_int_equal(pipe(ends), 0);
	for (int i = 0; i < CROWD; i++)
		if ((crowd[i] = fork()) == 0)
			be_strangers(&address, ends[1]);
	close(ends[1]);
	/* While they come, and when all are there. */
	snprintf(first, sizeof first, "%s", ckptd_client_address(a.client));
	ckptd_fixture_make(&b, files_path("crowd"), 0, 1, 2, a.token);
	b.plan.first = first;
	ckptd_fixture_open(&b);
	for (int64_t step = 1; step <= 2; step++) {
		ckptd_fixture_save(&a, step);
		ckptd_fixture_save(&b, step);
		wait_durable(&a, step);
		if (step == 1) {
			assert_int_equal(io_read_full(ends[0], words, CROWD), CROWD);
			kill((pid_t)ckptd_client_service(b.client), SIGKILL);
			ckptd_fixture_await(&b, CKPTD_RESTARTED, -1);
		}
	}
	for (int i = 0; i < CROWD; i++) {
		kill(crowd[i], SIGKILL);
		waitpid(crowd[i], NULL, 0);
	}
	close(ends[0]);
	ckptd_fixture_end(&a);
	ckptd_fixture_end(&b);
}

/* ---- many parts ---- */

/* A service of another part, as far as part 0's hears of it. */
struct other {
	struct ckptd_conn conn;
	bool decided;
};

struct many {
	struct ckptd_fixture part0;
	struct ckptd_address address;
	struct manifest
		*manifest; /* of part 0's text, without its files: what a part that writes nothing tells */
	struct other *others; /* [PARTS], from 1 on */
};

/* How many files this process may have open, and the service that it starts. */
static struct rlimit set_limit(rlim_t files)
{
	struct rlimit old, limit;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	limit = (struct rlimit) { files < old.rlim_max ? files : old.rlim_max, old.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	return old;
}

/* A service's, while it runs. */
static void limit_service(pid_t pid, rlim_t files)
{
	struct rlimit limit;
	assert_int_equal(prlimit(pid, RLIMIT_NOFILE, NULL, &limit), 0);
	limit.rlim_cur = files < limit.rlim_max ? files : limit.rlim_max;
	assert_int_equal(prlimit(pid, RLIMIT_NOFILE, &limit, NULL), 0);
}

static void open_many(struct many *many, const char *name)
{
	memset(many, 0, sizeof *many);
	ckptd_fixture_make(&many->part0, files_path(name), 0, 0, PARTS, NULL);
	for (int i = 0; i < CKPT_SAMPLE_TENSORS + CKPT_SAMPLE_STATE; i++)
		many->part0.tensors[i].writer = 0;
	for (int i = 0; i < CKPT_SAMPLE_SLICES; i++)
		many->part0.slices[i].writer = 0;
	/* As most processes begin. */
	struct rlimit old = set_limit(1024);
	ckptd_fixture_open(&many->part0);
	set_limit(old.rlim_max);
	many->address = address_of(&many->part0);
	many->others = calloc(PARTS, sizeof *many->others);
	for (int part = 1; part < PARTS; part++)
		many->others[part].conn.fd = -1;
}

static void close_many(struct many *many)
{
	for (int part = 1; part < PARTS; part++)
		ckptd_conn_close(&many->others[part].conn);
	free(many->others);
	manifest_destroy(many->manifest);
	ckptd_fixture_end(&many->part0);
}

/* Part 0 writes its part, and what the others tell follows from it. */
static void write_part0(struct many *many, int64_t step)
{
	AUTO_FREE char *text = NULL;
	char path[600];
	size_t size;
	struct err err;
	ckptd_fixture_save(&many->part0, step);
	ckptd_fixture_await(&many->part0, CKPTD_WRITTEN, step);
	snprintf(path, sizeof path, ".saving-step-%08" PRId64 "-%s/part-00001-of-%05d.json", step,
		many->part0.token, PARTS);
	if (io_read_file(many->part0.dir.fd, path, 1 << 20, &text, &size, &err) < 0)
		fail_msg("%s", err.text);
	manifest_destroy(many->manifest);
	many->manifest = manifest_parse_part(text, size, &err);
	if (!many->manifest)
		fail_msg("%s", err.text);
	for (size_t i = 0; i < many->manifest->file_count; i++)
		free(many->manifest->files[i].chunks);
	many->manifest->file_count = 0;
	for (int part = 1; part < PARTS; part++)
		many->others[part].decided = false;
}

static void tell(struct many *many, int part)
{
	struct ckptd_conn *conn = &many->others[part].conn;
	AUTO_FREE char *text = NULL;
	size_t size;
	many->manifest->part = part;
	assert_int_equal(manifest_encode(many->manifest, &text, &size, NULL), 0);
	const struct ckptd_message hello = { .type = CKPTD_HELLO,
		.hello = { many->address.secret, many->part0.token, part, PARTS } };
	const struct ckptd_message told = { .type = CKPTD_PART,
		.part = { many->manifest->step, text, 0, NULL } };
	if (conn->fd < 0) {
		int fd = dial(&many->address);
		if (fd < 0)
			fail_msg("part %d couldn't connect: %s", part, strerror(errno));
		ckptd_conn_open(conn, fd);
		if (ckptd_conn_send(conn, &hello, NULL, 0, NULL) < 0)
			return;
	}
	ckptd_conn_send(conn, &told, NULL, 0, NULL);
}

/* What part 0's service has said by now. A connection that it has closed is made anew, and the part
 * told again; so it may say twice what became of a save, and the second time during the next. */
static void hear(struct many *many, int part)
{
	struct other *other = &many->others[part];
	struct ckptd_message message;
	int rc = -1;
	while (!other->decided && (rc = ckptd_conn_receive(&other->conn, &message, NULL)) > 0) {
		assert_true(message.type == CKPTD_PART_TAKEN
			|| (message.type == CKPTD_DECIDED && message.decided.committed));
		other->decided =
			message.type == CKPTD_DECIDED && message.decided.step == many->manifest->step;
		ckptd_message_release(&message);
	}
	if (other->decided || rc == 0)
		return;
	ckptd_conn_close(&other->conn);
	tell(many, part);
}

static int decided(const struct many *many)
{
	int count = 0;
	for (int part = 1; part < PARTS; part++)
		count += many->others[part].decided;
	return count;
}

/* All hear that the save is whole. */
static void hear_all(struct many *many)
{
	struct deadline deadline = deadline_in(HANG_SECONDS);
	while (decided(many) < PARTS - 1) {
		for (int part = 1; part < PARTS; part++)
			hear(many, part);
		if (!deadline_sleep(deadline, 0.02))
			fail_msg("%d of %d parts have heard what became of the save", decided(many), PARTS - 1);
	}
}

static bool may_open_many(void)
{
	struct rlimit limit;
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_max >= PARTS + 200)
		return true;
	print_message("this process may not have %d files open\n", PARTS + 200);
	return false;
}

static void two_thousand_parts_are_heard(void **state)
{
	struct many many;
	if (!may_open_many())
		skip();
	open_many(&many, "many");
	for (int64_t step = 1; step <= 2; step++) {
		write_part0(&many, step);
		for (int part = 1; part < PARTS; part++)
			tell(&many, part);
		wait_durable(&many.part0, step);
		hear_all(&many);
	}
	close_many(&many);
}

/* And the service still has descriptors for the files of the save. */
static void so_they_are_with_few_descriptors(void **state)
{
	struct many many;
	if (!may_open_many())
		skip();
	open_many(&many, "few");
	limit_service((pid_t)ckptd_client_service(many.part0.client), FEW);
	for (int64_t step = 1; step <= 2; step++) {
		write_part0(&many, step);
		for (int part = 1; part < PARTS; part++)
			tell(&many, part);
		hear_all(&many);
		wait_durable(&many.part0, step);
	}
	close_many(&many);
}

/* Takes the part of one that connects within the time, and closes the connection; false: none did.
 */
static bool hear_and_close(int listener, struct deadline deadline)
{
	struct pollfd wait = { .fd = listener, .events = POLLIN };
	struct ckptd_message message, taken = { .type = CKPTD_PART_TAKEN, .decided.step = 1 };
	struct ckptd_conn conn;
	if (poll(&wait, 1, (int)(deadline_left(deadline) * 1000) + 1) <= 0)
		return false;
	ckptd_conn_open(&conn, accept(listener, NULL, NULL));
	for (int i = 0; i < 2; i++) {
		assert_int_equal(ckptd_conn_await(&conn, &message, deadline_in(HANG_SECONDS), NULL), 1);
		assert_int_equal(message.type, i == 0 ? CKPTD_HELLO : CKPTD_PART);
		ckptd_message_release(&message);
	}
	assert_int_equal(ckptd_conn_send(&conn, &taken, NULL, 0, NULL), 0);
	ckptd_conn_close(&conn);
	return true;
}

/* As a part is whose connection has gone for another one's, again and again. */
static void a_part_that_was_heard_comes_back_in_no_hurry(void **state)
{
	struct ckptd_fixture a, b;
	struct deadline deadline = deadline_in(4);
	char first[100];
	int port, count = 0, listener = listen_any(0, &port);
	ckptd_fixture_make(&a, files_path("hurry"), 0, 0, 2, NULL);
	ckptd_fixture_make(&b, files_path("hurry"), 0, 1, 2, a.token);
	snprintf(first, sizeof first, "127.0.0.1:%d:%s", port, a.token);
	b.plan.first = first;
	ckptd_fixture_open(&b);
	ckptd_fixture_save(&b, 1);
	assert_true(hear_and_close(listener, deadline_in(HANG_SECONDS)));
	while (hear_and_close(listener, deadline))
		count++;
	if (count > 10)
		fail_msg("it came back %d times in 4 s", count);
	/* But it does. */
	assert_true(hear_and_close(listener, deadline_in(HANG_SECONDS)));
	close(listener);
	ckptd_fixture_end(&a);
	ckptd_fixture_end(&b);
}

/* ---- none left ---- */

/* Processor time of a process, in seconds. */
static double time_used(pid_t pid)
{
	char path[40], text[1024];
	unsigned long user, kernel;
	snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	AUTO_FCLOSE FILE *file = fopen(path, "re");
	assert_true(file && fgets(text, sizeof text, file));
	assert_int_equal(sscanf(strrchr(text, ')'),
						 ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &kernel),
		2);
	return (double)(user + kernel) / (double)sysconf(_SC_CLK_TCK);
}

static void is_idle(pid_t pid)
{
	double used = time_used(pid);
	deadline_sleep(deadline_in(10), 2);
	used = time_used(pid) - used;
	if (used > 0.1)
		fail_msg("the service was busy for %g of 2 s", used);
}

/* What waits at the socket is neither looked at without end nor lost. */
static void without_a_descriptor_a_part_waits(void **state)
{
	struct many many;
	if (!may_open_many())
		skip();
	open_many(&many, "none");
	pid_t pid = (pid_t)ckptd_client_service(many.part0.client);
	write_part0(&many, 1);
	limit_service(pid, 6); /* it has more open */
	for (int part = 1; part < PARTS; part++)
		tell(&many, part);
	is_idle(pid);
	limit_service(pid, RLIM_INFINITY);
	wait_durable(&many.part0, 1);
	hear_all(&many);
	close_many(&many);
}

static void without_a_descriptor_a_client_waits(void **state)
{
	const struct ckptd_message question = { .type = CKPTD_STATUS };
	struct ckptd_message answer;
	struct ckptd_conn conn;
	struct err err;
	pid_t ignored;
	const char *socket = ckptd_node_folder("node");
	pid_t pid = ckptd_node_service(socket);
	limit_service(pid, 3);
	ckptd_conn_open(&conn, ckptd_socket_connect(socket, &ignored, &err));
	assert_int_equal(ckptd_conn_send(&conn, &question, NULL, 0, &err), 0);
	is_idle(pid);
	limit_service(pid, RLIM_INFINITY);
	if (ckptd_conn_await(&conn, &answer, deadline_in(HANG_SECONDS), &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(answer.type, CKPTD_STATE);
	ckptd_message_release(&answer);
	ckptd_conn_close(&conn);
	assert_int_equal(CKPTD_RUN("finish", "--finish", socket), 0);
	ckptd_node_end_of(pid);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ten_thousand_strangers_lose_no_save),
		cmocka_unit_test(two_thousand_parts_are_heard),
		cmocka_unit_test(so_they_are_with_few_descriptors),
		cmocka_unit_test(a_part_that_was_heard_comes_back_in_no_hurry),
		cmocka_unit_test(without_a_descriptor_a_part_waits),
		cmocka_unit_test(without_a_descriptor_a_client_waits),
	};
	unsetenv("MUSTER_CKPTD");
	ckptd_program();
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	return cmocka_run_group_tests(tests, files_setup, files_teardown);
}
