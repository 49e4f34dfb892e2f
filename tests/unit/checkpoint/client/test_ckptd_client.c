/* SPDX-License-Identifier: Apache-2.0 */
/* ckptd_client, where its caller does not wait: its thread completes a buffer before it hands it
 * over, and reports what can't be completed or handed over. */
#include "config.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/unit/checkpoint/service/ckptd_fixture.h"
#include "tests/unit/files.h"

/* What the client's thread does before it hands a buffer over: it waits for us to let it go on, and
 * then fills the buffer, or fails. */
struct filling {
	struct ckptd_fixture fixture;
	pthread_mutex_t gate;
	bool fails;
};

static int fill_late(void *arg, int buffer, const struct save_step *step, struct err *err)
{
	struct filling *filling = arg;
	pthread_mutex_lock(&filling->gate);
	bool fails = filling->fails;
	ckpt_sample_fill(filling->fixture.memory.base[buffer], step->step);
	pthread_mutex_unlock(&filling->gate);
	return fails ? err_fail(err, EXIT_DATA, "it can't be filled") : 0;
}

/* Opens a client whose buffers `fill_late` completes. */
static void open_filling(struct filling *filling, const char *name)
{
	struct ckptd_fixture *fixture = &filling->fixture;
	ckptd_fixture_make(fixture, files_path(name), 0, 0, 1, NULL);
	fixture->plan.complete = fill_late;
	pthread_mutex_init(&filling->gate, NULL);
	ckptd_fixture_open(fixture);
}

static void close_filling(struct filling *filling)
{
	ckptd_fixture_end(&filling->fixture);
	pthread_mutex_destroy(&filling->gate);
}

static void begin(struct filling *filling, int64_t step)
{
	struct ckpt_sample sample;
	struct err err;
	int buffer = ckptd_client_buffer(filling->fixture.client, -1, HANG_SECONDS);
	ckpt_sample_fill(&sample, step);
	struct snapshot snapshot = filling->fixture.snapshot;
	snapshot.at = sample.snapshot.at;
	if (ckptd_client_begin(filling->fixture.client, buffer, &snapshot, &err) < 0)
		fail_msg("%s", err.text);
}

static void a_buffer_is_completed_before_it_is_handed_over(void **state)
{
	static struct filling filling;
	struct ckptd_fixture *fixture = &filling.fixture;
	struct err err;
	open_filling(&filling, "late-filled");
	pthread_mutex_lock(&filling.gate);
	begin(&filling, 1);
	/* Meanwhile there is no other buffer, no end of the save, and no way to close. */
	assert_int_equal(ckptd_client_buffer(fixture->client, -1, 0.05), -1);
	assert_int_equal(ckptd_client_wait(fixture->client, 1, 0, &err), -1);
	assert_int_equal(err.status, EXIT_LOST);
	assert_false(ckptd_client_close(fixture->client, 0.05));
	assert_false(ckptd_fixture_saving(fixture, 1) || ckptd_fixture_has(fixture, 1));
	pthread_mutex_unlock(&filling.gate);
	ckptd_fixture_await_durable(fixture, 1);
	/* A service that is lost before is replaced, and what can't be completed is not handed over. */
	pthread_mutex_lock(&filling.gate);
	begin(&filling, 2);
	kill((pid_t)ckptd_client_service(fixture->client), SIGKILL);
	pthread_mutex_unlock(&filling.gate);
	ckptd_fixture_await_durable(fixture, 2);
	filling.fails = true;
	begin(&filling, 3);
	assert_int_equal(ckptd_client_wait(fixture->client, 3, HANG_SECONDS, &err), -1);
	assert_int_equal(err.status, EXIT_DATA);
	assert_string_equal(ckptd_fixture_await(fixture, CKPTD_FAILED, 3), "it can't be filled");
	assert_true(ckptd_client_buffer(fixture->client, -1, 0) >= 0);
	ckptd_fixture_check(fixture, 1);
	ckptd_fixture_check(fixture, 2);
	assert_false(ckptd_fixture_has(fixture, 3));
	close_filling(&filling);
}

/* Without a service, what was only begun is reported as refused. */
static void what_is_begun_without_a_service_is_refused(void **state)
{
	static struct filling filling;
	struct ckptd_fixture *fixture = &filling.fixture;
	struct err err;
	open_filling(&filling, "refused");
	setenv("MUSTER_CKPTD_PROGRAM", "/nonexistent/muster-ckptd", 1);
	kill((pid_t)ckptd_client_service(fixture->client), SIGKILL);
	ckptd_fixture_await(fixture, CKPTD_GONE, -1);
	begin(&filling, 1);
	assert_non_null(strstr(ckptd_fixture_await(fixture, CKPTD_NO_SERVICE, 1), "/nonexistent"));
	assert_int_equal(ckptd_client_wait(fixture->client, 1, HANG_SECONDS, &err), -1);
	assert_non_null(strstr(err.text, "/nonexistent"));
	ckptd_program();
	begin(&filling, 2);
	ckptd_fixture_await_durable(fixture, 2);
	ckptd_fixture_check(fixture, 2);
	close_filling(&filling);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_buffer_is_completed_before_it_is_handed_over),
		cmocka_unit_test(what_is_begun_without_a_service_is_refused),
	};
	unsetenv("MUSTER_CKPTD");
	ckptd_program();
	return cmocka_run_group_tests(tests, files_setup, files_teardown);
}
