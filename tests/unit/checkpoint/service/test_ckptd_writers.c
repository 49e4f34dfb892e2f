/* SPDX-License-Identifier: Apache-2.0 */
/* Saves of several writers: their services make them whole over TCP, whichever of them dies. */
#include "config.h"

#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "checkpoint/protocol/ckptd_conn.h"
#include "checkpoint/protocol/ckptd_tcp.h"
#include "common/clock.h"
#include "common/log.h"
#include "tests/unit/checkpoint/service/ckptd_fixture.h"
#include "tests/unit/files.h"

#define LARGE (64u << 20)

/* ---- two services ---- */

struct two {
	struct ckptd_fixture a, b;
	char address[200];
};

static void open_two(struct two *two, const char *name, size_t ballast)
{
	ckptd_fixture_make(&two->a, files_path(name), ballast, 0, 2, NULL);
	ckptd_fixture_open(&two->a);
	snprintf(two->address, sizeof two->address, "%s", ckptd_client_address(two->a.client));
	ckptd_fixture_make(&two->b, files_path(name), ballast, 1, 2, two->a.token);
	two->b.plan.first = two->address;
	ckptd_fixture_open(&two->b);
	assert_string_equal(ckptd_client_address(two->b.client), "");
}

static void close_two(struct two *two)
{
	ckptd_fixture_end(&two->a);
	ckptd_fixture_end(&two->b);
}

/* Both hand their parts over, that of `first` before the other. */
static void save_both(struct two *two, struct ckptd_fixture *first, int64_t step)
{
	ckptd_fixture_save(first, step);
	ckptd_fixture_save(first == &two->a ? &two->b : &two->a, step);
}

static void wait_both(struct two *two, int64_t step)
{
	struct err err;
	if (ckptd_client_wait(two->b.client, step, HANG_SECONDS, &err) < 0
		|| ckptd_client_wait(two->a.client, step, HANG_SECONDS, &err) < 0)
		fail_msg("%s", err.text);
	ckptd_fixture_check(&two->a, step);
}

/* The save has no good end, and its error has these words. */
static void assert_failed(const struct ckptd_fixture *fixture, int64_t step, const char *words)
{
	struct err err;
	assert_int_equal(ckptd_client_wait(fixture->client, step, HANG_SECONDS, &err), -1);
	if (!strstr(err.text, words))
		fail_msg("'%s' is not in: %s", words, err.text);
}

static void signal_service(const struct ckptd_fixture *fixture, int signal)
{
	assert_int_equal(kill((pid_t)ckptd_client_service(fixture->client), signal), 0);
}

/* The trainers end, without waiting for what they have handed over. */
static void leave(struct ckptd_fixture *fixture)
{
	ckptd_client_close(fixture->client, 0);
	fixture->client = NULL;
}

static void two_parts_become_one_checkpoint(void **state)
{
	struct two two;
	open_two(&two, "two", 1 << 20);
	for (int64_t step = 1; step <= 4; step++)
		save_both(&two, step % 2 ? &two.a : &two.b, step);
	for (int64_t step = 1; step <= 4; step++)
		wait_both(&two, step);
	for (int64_t step = 1; step <= 4; step++) {
		assert_int_equal(ckptd_fixture_events(&two.a, CKPTD_WRITTEN, step), 1);
		assert_int_equal(ckptd_fixture_events(&two.a, CKPTD_DURABLE, step), 1);
		assert_int_equal(ckptd_fixture_events(&two.b, CKPTD_WRITTEN, step), 1);
		assert_false(ckptd_fixture_saving(&two.a, step));
	}
	assert_int_equal(two.a.count, 8);
	assert_int_equal(two.b.count, 4);
	close_two(&two);
}

/* Nobody is told anything by the trainers any more: the services finish by themselves. */
static void two_dead_trainers_lose_nothing(void **state)
{
	struct two two;
	open_two(&two, "dead", LARGE);
	save_both(&two, &two.b, 1);
	leave(&two.a);
	leave(&two.b);
	CKPTD_UNTIL(ckptd_fixture_has(&two.a, 1));
	ckptd_fixture_check(&two.a, 1);
	close_two(&two);
}

static void the_first_part_s_service_is_replaced(void **state)
{
	struct two two;
	open_two(&two, "first", LARGE);
	/* Before the other part is told. */
	signal_service(&two.b, SIGSTOP);
	save_both(&two, &two.b, 1);
	ckptd_fixture_await(&two.a, CKPTD_WRITTEN, 1);
	signal_service(&two.a, SIGKILL);
	ckptd_fixture_await(&two.a, CKPTD_RESTARTED, -1);
	assert_string_equal(ckptd_client_address(two.a.client), two.address);
	signal_service(&two.b, SIGCONT);
	wait_both(&two, 1);
	assert_int_equal(ckptd_fixture_events(&two.a, CKPTD_WRITTEN, 1), 1);
	/* And after: part 1 is told again to the service that took over. */
	signal_service(&two.a, SIGSTOP);
	save_both(&two, &two.a, 2);
	deadline_sleep(deadline_in(5), 0.2);
	signal_service(&two.a, SIGKILL);
	wait_both(&two, 2);
	/* It had taken the part, and died with the word of it. */
	ckptd_fixture_save(&two.b, 3);
	ckptd_fixture_await(&two.b, CKPTD_WRITTEN, 3);
	signal_service(&two.a, SIGKILL);
	CKPTD_UNTIL(ckptd_fixture_events(&two.a, CKPTD_RESTARTED, -1) == 3);
	ckptd_fixture_save(&two.a, 3);
	wait_both(&two, 3);
	assert_int_equal(ckptd_fixture_events(&two.a, CKPTD_FAILED, -1), 0);
	close_two(&two);
}

static void part_file(const struct ckptd_fixture *fixture, int64_t step, char path[600])
{
	snprintf(path, 600, "%s/.saving-step-%08lld-%s/part-00002-of-00002.json", fixture->dir.path,
		(long long)step, fixture->token);
}

static void the_other_part_s_service_is_replaced(void **state)
{
	struct two two;
	char path[600];
	open_two(&two, "other", LARGE);
	/* In mid-write. */
	ckptd_fixture_save(&two.b, 1);
	CKPTD_UNTIL(ckptd_fixture_saving(&two.a, 1));
	signal_service(&two.b, SIGKILL);
	ckptd_fixture_save(&two.a, 1);
	wait_both(&two, 1);
	/* With its part durable and not told: it is told, and not written again. */
	signal_service(&two.a, SIGSTOP);
	ckptd_fixture_save(&two.b, 2);
	part_file(&two.b, 2, path);
	struct stat before, after;
	CKPTD_UNTIL(stat(path, &before) == 0);
	deadline_sleep(deadline_in(5), 0.1);
	signal_service(&two.b, SIGKILL);
	CKPTD_UNTIL(ckptd_fixture_events(&two.b, CKPTD_RESTARTED, -1) == 2);
	deadline_sleep(deadline_in(5), 0.3);
	assert_int_equal(stat(path, &after), 0);
	assert_int_equal(before.st_ino, after.st_ino);
	signal_service(&two.a, SIGCONT);
	ckptd_fixture_save(&two.a, 2);
	wait_both(&two, 2);
	close_two(&two);
}

static void a_failed_part_fails_the_save_and_no_other(void **state)
{
	struct two two;
	open_two(&two, "failed", 0);
	/* The second part's shard can't be made: a folder has its name. */
	char path[600], shard[700];
	part_file(&two.b, 1, path);
	*strrchr(path, '/') = '\0';
	assert_int_equal(mkdir(path, 0755), 0);
	snprintf(shard, sizeof shard, "%s/part-00002-of-00002.json", path);
	assert_int_equal(mkdir(shard, 0755), 0);
	ckptd_fixture_save(&two.a, 1);
	ckptd_fixture_await(&two.a, CKPTD_WRITTEN, 1);
	ckptd_fixture_save(&two.b, 1);
	assert_failed(&two.b, 1, "");
	assert_failed(&two.a, 1, "part 2 of 2");
	rmdir(shard);
	CKPTD_UNTIL(!ckptd_fixture_saving(&two.a, 1) || rmdir(path) == 0);
	assert_false(ckptd_fixture_has(&two.a, 1));
	/* The same step once more. */
	save_both(&two, &two.a, 1);
	wait_both(&two, 1);
	close_two(&two);
}

static void a_part_that_never_comes_is_overtaken(void **state)
{
	struct two two;
	open_two(&two, "overtaken", 0);
	ckptd_fixture_save(&two.a, 1);
	save_both(&two, &two.a, 2);
	wait_both(&two, 2);
	assert_failed(&two.a, 1, "part 2 of 2");
	assert_int_equal(ckptd_fixture_events(&two.a, CKPTD_FAILED, 1), 1);
	assert_false(ckptd_fixture_saving(&two.a, 1));
	close_two(&two);
}

static void a_rank_that_ends_before_its_part_fails_the_save(void **state)
{
	struct two two;
	open_two(&two, "left", 0);
	save_both(&two, &two.a, 1);
	wait_both(&two, 1);
	/* Both begun before, and begun after the rank has ended. */
	ckptd_fixture_save(&two.a, 2);
	ckptd_fixture_await(&two.a, CKPTD_WRITTEN, 2);
	leave(&two.b);
	for (int64_t step = 2; step <= 3; step++) {
		assert_failed(&two.a, step, "part 2 of 2 was not handed over");
		assert_false(ckptd_fixture_saving(&two.a, step));
		if (step == 2)
			ckptd_fixture_save(&two.a, 3);
	}
	ckptd_fixture_check(&two.a, 1);
	close_two(&two);
}

static bool has_ended(pid_t service)
{
	return waitpid(service, NULL, WNOHANG) != 0;
}

/* Whichever of two ranks ends without having handed over its part: neither service waits for it. */
static void services_end_with_their_ranks(void **state)
{
	for (int late = 0; late < 2; late++) {
		struct two two;
		open_two(&two, late ? "end-a" : "end-b", 0);
		struct ckptd_fixture *alone = late ? &two.a : &two.b;
		pid_t a = (pid_t)ckptd_client_service(two.a.client),
			  b = (pid_t)ckptd_client_service(two.b.client);
		ckptd_fixture_save(alone, 1);
		deadline_sleep(deadline_in(5), 0.2);
		leave(&two.a);
		leave(&two.b);
		CKPTD_UNTIL(has_ended(a));
		CKPTD_UNTIL(has_ended(b));
		assert_false(ckptd_fixture_has(&two.a, 1));
		close_two(&two);
	}
}

/* ---- many deaths ---- */

#define MANY 3
#define STEPS 120
#define DEATHS 24

struct killing {
	struct ckptd_fixture fixtures[MANY];
	pthread_t thread;
	unsigned seed;
	int kills;
	bool over;
	pthread_mutex_t lock;
};

static bool is_over(struct killing *killing)
{
	pthread_mutex_lock(&killing->lock);
	bool over = killing->over;
	pthread_mutex_unlock(&killing->lock);
	return over;
}

/* One of them, at random moments; but none so often that its client gives up. */
static void *kill_some(void *arg)
{
	struct killing *killing = arg;
	int ends[MANY] = { 0 };
	while (!is_over(killing) && killing->kills < DEATHS) {
		deadline_sleep(deadline_in(1), (double)(rand_r(&killing->seed) % 150) * 1e-3);
		int i = rand_r(&killing->seed) % MANY;
		int now = ckptd_fixture_events(&killing->fixtures[i], CKPTD_WRITTEN, -1);
		pid_t pid = (pid_t)ckptd_client_service(killing->fixtures[i].client);
		if (pid > 0 && now > ends[i]) {
			kill(pid, SIGKILL);
			killing->kills++;
			ends[i] = now;
		}
	}
	return NULL;
}

static void open_many(struct ckptd_fixture *fixtures, char address[200])
{
	for (int i = 0; i < MANY; i++) {
		ckptd_fixture_make(&fixtures[i], files_path("many"), 2 << 20, i, MANY, fixtures[0].token);
		fixtures[i].plan.first = i > 0 ? address : NULL;
		fixtures[i].plan.retention.keep_last = 3;
		ckptd_fixture_open(&fixtures[i]);
		snprintf(address, 200, "%s", ckptd_client_address(fixtures[0].client));
	}
}

/* All saves became durable, each told once, and nobody gave up. */
static void check_events(struct ckptd_fixture *fixtures)
{
	for (int64_t step = 1; step <= STEPS; step++)
		assert_int_equal(ckptd_fixture_events(&fixtures[0], CKPTD_DURABLE, step), 1);
	for (int i = 0; i < MANY; i++) {
		assert_int_equal(ckptd_fixture_events(&fixtures[i], CKPTD_FAILED, -1), 0);
		assert_int_equal(ckptd_fixture_events(&fixtures[i], CKPTD_GONE, -1), 0);
		for (int64_t step = 1; step <= STEPS; step++)
			assert_true(ckptd_fixture_events(&fixtures[i], CKPTD_WRITTEN, step) <= 1);
	}
}

static void services_that_die_at_random_moments_lose_nothing(void **state)
{
	static struct killing killing = { .lock = PTHREAD_MUTEX_INITIALIZER };
	struct ckptd_fixture *fixtures = killing.fixtures;
	char address[200];
	struct err err;
	killing.seed = (unsigned)getpid();
	print_message("seed %u\n", killing.seed);
	open_many(fixtures, address);
	assert_int_equal(pthread_create(&killing.thread, NULL, kill_some, &killing), 0);
	for (int64_t step = 1; step <= STEPS; step++) {
		for (int i = 0; i < MANY; i++)
			ckptd_fixture_save(&fixtures[i], step);
		if (step % 3 == 0 && ckptd_client_wait(fixtures[0].client, step, HANG_SECONDS, &err) < 0)
			fail_msg("%s", err.text);
		if (step % 3 == 0)
			ckptd_fixture_check(&fixtures[0], step);
	}
	pthread_mutex_lock(&killing.lock);
	killing.over = true;
	pthread_mutex_unlock(&killing.lock);
	pthread_join(killing.thread, NULL);
	print_message("%d services died\n", killing.kills);
	assert_true(killing.kills > 3);
	check_events(fixtures);
	for (int i = 0; i < MANY; i++)
		ckptd_fixture_end(&fixtures[i]);
}

/* ---- strangers ---- */

static void dial(struct ckptd_conn *conn, const struct ckptd_address *address)
{
	struct sockaddr_storage to;
	socklen_t size;
	assert_int_equal(ckptd_tcp_address(address->host, address->port, &to, &size, NULL), 0);
	int fd = socket(to.ss_family, SOCK_STREAM, 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&to, size), 0);
	ckptd_conn_open(conn, fd);
}

/* Says it, and has to be sent away. */
static void is_sent_away(const struct ckptd_address *address, const struct ckptd_message *said)
{
	struct ckptd_conn conn;
	struct ckptd_message answer;
	struct err err;
	dial(&conn, address);
	assert_int_equal(ckptd_conn_send(&conn, said, NULL, 0, &err), 0);
	int rc = ckptd_conn_await(&conn, &answer, deadline_in(HANG_SECONDS), &err);
	if (rc == 1) {
		assert_int_equal(answer.type, CKPTD_REFUSED);
		ckptd_message_release(&answer);
		rc = ckptd_conn_await(&conn, &answer, deadline_in(HANG_SECONDS), &err);
	}
	assert_int_equal(rc, -1);
	assert_null(strstr(err.text, "no answer"));
	ckptd_conn_close(&conn);
}

static void who_does_not_know_the_secret_is_sent_away(void **state)
{
	static const char *const wrong = "00000000000000000000000000000000";
	struct two two;
	struct ckptd_address address;
	open_two(&two, "secret", 0);
	assert_int_equal(ckptd_address_parse(two.address, &address, NULL), 0);
	const struct ckptd_message said[] = {
		{ .type = CKPTD_HELLO, .hello = { wrong, two.a.token, 1, 2 } },
		{ .type = CKPTD_HELLO, .hello = { address.secret, wrong, 1, 2 } },
		{ .type = CKPTD_HELLO, .hello = { address.secret, two.a.token, 1, 3 } },
		{ .type = CKPTD_PART, .part = { 1, "{}", 0, NULL } },
		{ .type = CKPTD_FINISH, .finish = { 0 } },
	};
	for (size_t i = 0; i < sizeof said / sizeof said[0]; i++)
		is_sent_away(&address, &said[i]);
	/* A large first frame is not read. */
	char *large = malloc(100000);
	memset(large, 'x', 99999);
	large[99999] = '\0';
	const struct ckptd_message heavy = { .type = CKPTD_PART, .part = { 1, large, 0, NULL } };
	is_sent_away(&address, &heavy);
	free(large);
	save_both(&two, &two.a, 1);
	wait_both(&two, 1);
	close_two(&two);
}

/* One who knows the secret and tells nonsense makes a save fail, and no more. */
static void a_part_s_text_is_looked_at(void **state)
{
	struct two two;
	struct ckptd_address address;
	struct ckptd_conn conn;
	struct err err;
	open_two(&two, "text", 0);
	assert_int_equal(ckptd_address_parse(two.address, &address, NULL), 0);
	dial(&conn, &address);
	const struct ckptd_message hello = { .type = CKPTD_HELLO,
		.hello = { address.secret, two.a.token, 1, 2 } };
	const struct ckptd_message part = { .type = CKPTD_PART,
		.part = { 1, "{\"part\": 1}", 0, NULL } };
	assert_int_equal(ckptd_conn_send(&conn, &hello, NULL, 0, &err), 0);
	assert_int_equal(ckptd_conn_send(&conn, &part, NULL, 0, &err), 0);
	ckptd_fixture_save(&two.a, 1);
	assert_failed(&two.a, 1, "part 2 of 2");
	assert_false(ckptd_fixture_has(&two.a, 1));
	ckptd_conn_close(&conn);
	save_both(&two, &two.a, 2);
	wait_both(&two, 2);
	close_two(&two);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(two_parts_become_one_checkpoint),
		cmocka_unit_test(two_dead_trainers_lose_nothing),
		cmocka_unit_test(the_first_part_s_service_is_replaced),
		cmocka_unit_test(the_other_part_s_service_is_replaced),
		cmocka_unit_test(a_failed_part_fails_the_save_and_no_other),
		cmocka_unit_test(a_part_that_never_comes_is_overtaken),
		cmocka_unit_test(a_rank_that_ends_before_its_part_fails_the_save),
		cmocka_unit_test(services_end_with_their_ranks),
		cmocka_unit_test(services_that_die_at_random_moments_lose_nothing),
		cmocka_unit_test(who_does_not_know_the_secret_is_sent_away),
		cmocka_unit_test(a_part_s_text_is_looked_at),
	};
	unsetenv("MUSTER_CKPTD");
	ckptd_program();
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	return cmocka_run_group_tests(tests, files_setup, files_teardown);
}
