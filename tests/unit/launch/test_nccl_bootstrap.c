/* SPDX-License-Identifier: Apache-2.0 */
/* The bootstrap's deadlines and failures, with an NCCL whose connecting is as slow, as broken or as
 * endless as a case wants. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/clock.h"
#include "launch/nccl_bootstrap.h"
#include "launch/nccl_library.h"
#include "tests/unit/hang.h"
#include "tests/unit/launch/meeting_fixture.h"

#define WORLD 4

/* How the NCCL of a rank behaves. */
static struct script {
	int version, gpus;
	ncclResult_t id;        /* of making a unique id */
	ncclResult_t connected; /* what the connecting comes to; ncclInProgress: never ends */
	double seconds;         /* until then */
} script;

static struct {
	double ready;
	int aborted, finalized, destroyed;
	char id[NCCL_UNIQUE_ID_BYTES];
} made;

static ncclResult_t get_version(int *version)
{
	*version = script.version;
	return ncclSuccess;
}

static ncclResult_t get_unique_id(ncclUniqueId *id)
{
	memset(id, 0x5a, sizeof *id);
	return script.id;
}

static ncclResult_t init(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank,
	ncclConfig_t *config)
{
	*comm = (ncclComm_t)(void *)&made;
	memcpy(made.id, &id, sizeof made.id);
	made.ready = clock_now() + script.seconds;
	return config->blocking == 0 && ranks == WORLD ? ncclInProgress : ncclInvalidArgument;
}

static ncclResult_t get_async_error(ncclComm_t comm, ncclResult_t *error)
{
	*error = clock_now() < made.ready ? ncclInProgress : script.connected;
	return ncclSuccess;
}

static ncclResult_t finalize(ncclComm_t comm)
{
	made.finalized++;
	made.ready = clock_now() + script.seconds;
	return ncclInProgress;
}

static ncclResult_t destroy(ncclComm_t comm)
{
	made.destroyed++;
	return ncclSuccess;
}

static ncclResult_t end_at_once(ncclComm_t comm)
{
	made.aborted++;
	return ncclSuccess;
}

static const char *get_error_string(ncclResult_t result)
{
	return result == ncclInvalidUsage ? "invalid usage"
		: result == ncclRemoteError   ? "remote process exited"
									  : "system error";
}

static const char *get_last_error(ncclComm_t comm)
{
	return "what NCCL says";
}

static int count_gpus(struct err *err)
{
	return script.gpus < 0 ? err_fail(err, EXIT_USAGE, "no driver") : script.gpus;
}

static int stream_ended(void *stream, struct err *err)
{
	return clock_now() >= *(double *)stream;
}

static const struct nccl_library scripted = { .get_version = get_version,
	.get_unique_id = get_unique_id,
	.init = init,
	.get_async_error = get_async_error,
	.finalize = finalize,
	.destroy = destroy,
	.abort = end_at_once,
	.get_error_string = get_error_string,
	.get_last_error = get_last_error,
	.count_gpus = count_gpus,
	.stream_ended = stream_ended };

/* The case: what all ranks do but one. */
static struct script others, odd;
static int odd_rank;
static double timeout;

static int bootstrap(struct rdzv *rdzv, const struct ident *ident, struct meeting_rank *mine,
	struct err *err)
{
	void *comm;
	script = ident->rank == odd_rank ? odd : others;
	int rc = nccl_bootstrap(rdzv, ident, &scripted, 0, timeout, &comm, err);
	mine->value[0] = (unsigned char)made.aborted;
	memcpy(mine->value + 1, made.id, 100);
	if (rc < 0)
		return comm ? err_set(err, "a communicator came with an error") : -1;
	return comm == &made ? nccl_bootstrap_end(&scripted, comm, 1, 5, err)
						 : err_set(err, "no communicator came");
}

static const struct script good = { .version = 22809,
	.gpus = 1,
	.connected = ncclSuccess,
	.seconds = 0.05 };

static void run_case(struct meeting_rank *ranks, int rank, struct script behaviour, double seconds)
{
	others = good;
	odd_rank = rank;
	odd = behaviour;
	timeout = seconds;
	meeting_run(WORLD, bootstrap, ranks);
}

static void all_ranks_get_a_communicator(void **state)
{
	struct meeting_rank ranks[WORLD];
	struct script late = good;
	late.seconds = 0.4; /* nobody goes on before the last has connected */
	run_case(ranks, 2, late, 20);
	for (int rank = 0; rank < WORLD; rank++) {
		if (ranks[rank].rc != 0)
			fail_msg("rank %d: %s", rank, ranks[rank].err.text);
		assert_true(ranks[rank].seconds >= 0.4);
		assert_int_equal(ranks[rank].value[0], 0);
		assert_int_equal(ranks[rank].value[1], 0x5a);
	}
}

/* All ranks say `text` at once; `aborted` is how often each has aborted a communicator. */
static void all_fail(int rank, struct script behaviour, enum exit_status status, int aborted,
	const char *text)
{
	struct meeting_rank ranks[WORLD];
	run_case(ranks, rank, behaviour, 60);
	for (int i = 0; i < WORLD; i++) {
		assert_int_equal(ranks[i].rc, -1);
		if (ranks[i].err.status != status || !strstr(ranks[i].err.text, text))
			fail_msg("rank %d: status %d: %s", i, (int)ranks[i].err.status, ranks[i].err.text);
		assert_string_equal(ranks[i].err.text, ranks[0].err.text);
		assert_int_equal(ranks[i].value[0], aborted);
		assert_true(ranks[i].seconds < 20);
	}
}

static void what_a_rank_lacks_is_told_by_all_at_once(void **state)
{
	struct script lacking = good;
	lacking.gpus = 0;
	all_fail(2, lacking, EXIT_USAGE, 0,
		"rank 2 (on n2): nccl: couldn't find a GPU: none is visible: ask for one");
	lacking.gpus = -1;
	all_fail(0, lacking, EXIT_USAGE, 0, "rank 0 (on n0): no driver");
	lacking = good;
	lacking.version = 22703;
	all_fail(3, lacking, EXIT_USAGE, 0,
		"rank 3 (on n3) has NCCL 2.27.3, rank 0 (on n0) has 2.28.9");
	lacking = good;
	lacking.id = ncclSystemError;
	all_fail(0, lacking, EXIT_FAULT, 0,
		"rank 0 (on n0): nccl: couldn't make a unique id: system error (what NCCL says): set "
		"NCCL_SOCKET_IFNAME");
}

static void a_rank_that_can_not_connect_is_told_by_all(void **state)
{
	struct script broken = good;
	broken.connected = ncclInvalidUsage;
	all_fail(1, broken, EXIT_USAGE, 1,
		"rank 1 (on n1): nccl: couldn't connect to the other ranks: invalid usage (what NCCL "
		"says): give each rank a GPU of its own");
	broken.connected = ncclSystemError;
	all_fail(3, broken, EXIT_FAULT, 1,
		"rank 3 (on n3): nccl: couldn't connect to the other ranks: system error");
}

/* Where one rank hangs in NCCL none of the others gets on; and all leave at the deadline. */
static void a_connecting_that_never_ends_is_aborted(void **state)
{
	struct meeting_rank ranks[WORLD];
	struct script endless = good;
	endless.connected = ncclInProgress;
	char told[200];
	const double deadline = HANG_SECONDS / 40; /* which passes in vain */
	snprintf(told, sizeof told,
		"rank 2 (on n2): nccl: couldn't connect all 4 ranks within %.0f s: set NCCL_SOCKET_IFNAME",
		deadline);
	run_case(ranks, 2, endless, deadline);
	for (int rank = 0; rank < WORLD; rank++) {
		assert_int_equal(ranks[rank].err.status, EXIT_LOST);
		assert_string_equal(ranks[rank].err.text, ranks[0].err.text);
		assert_non_null(strstr(ranks[rank].err.text, told));
		assert_int_equal(ranks[rank].value[0], 1);
		assert_true(ranks[rank].seconds >= deadline && ranks[rank].seconds < HANG_SECONDS);
	}
}

/* The others stand in NCCL, where no one tells them that rank 1 is dead. */
static int die_while_connecting(struct rdzv *rdzv, const struct ident *ident,
	struct meeting_rank *mine, struct err *err)
{
	if (ident->rank == 1)
		kill(getpid(), SIGKILL);
	return bootstrap(rdzv, ident, mine, err);
}

static void a_dead_rank_is_named_by_the_deadline(void **state)
{
	struct meeting_rank ranks[WORLD];
	others = odd = good;
	timeout = HANG_SECONDS / 40; /* which passes in vain */
	meeting_run(WORLD, die_while_connecting, ranks);
	assert_int_equal(ranks[1].signal, SIGKILL);
	for (int rank = 0; rank < WORLD; rank++)
		if (rank != 1) {
			assert_int_equal(ranks[rank].err.status, EXIT_LOST);
			assert_non_null(strstr(ranks[rank].err.text, "rank 1 (on n1) did not come"));
			assert_true(ranks[rank].seconds < HANG_SECONDS);
		}
}

static void an_end_that_hangs_becomes_an_abort(void **state)
{
	struct err err;
	script = good;
	memset(&made, 0, sizeof made);
	assert_int_equal(nccl_bootstrap_end(&scripted, &made, 1, 5, &err), 0);
	assert_true(made.finalized == 1 && made.destroyed == 1 && made.aborted == 0);
	script.connected = ncclInProgress;
	assert_int_equal(nccl_bootstrap_end(&scripted, &made, 1, 0.1, &err), -1);
	assert_int_equal(err.status, EXIT_LOST);
	assert_int_equal(made.aborted, 1);
	assert_int_equal(nccl_bootstrap_end(&scripted, &made, 0, 0, &err), 0);
	assert_int_equal(made.aborted, 2);
	assert_int_equal(made.destroyed, 1);
}

static double wait_for(double stream, ncclResult_t begun, ncclResult_t later, double seconds,
	struct err *err)
{
	double began = clock_now();
	script = good;
	script.connected = later;
	made.ready = began + 0.05;
	stream += began;
	err->status = nccl_bootstrap_wait(&scripted, &made, begun, &stream, seconds, err) < 0
		? err->status
		: EXIT_OK;
	return clock_now() - began;
}

static void a_collective_is_waited_for_until_the_deadline(void **state)
{
	struct err err;
	assert_in_range(1000 * wait_for(0.2, ncclInProgress, ncclSuccess, 60, &err), 200, 20000);
	assert_int_equal(err.status, EXIT_OK);
	assert_in_range(1000 * wait_for(60, ncclSuccess, ncclSuccess, 0.3, &err), 300, 20000);
	assert_int_equal(err.status, EXIT_LOST);
	assert_non_null(
		strstr(err.text, "nccl: couldn't finish a collective within 0.3 s: a rank is gone"));
	assert_in_range(1000 * wait_for(0, ncclInProgress, ncclInProgress, 0.3, &err), 300, 20000);
	assert_int_equal(err.status, EXIT_LOST);
	/* What NCCL knows is told at once, not at the deadline. */
	assert_true(wait_for(60, ncclSuccess, ncclRemoteError, 60, &err) < 20);
	assert_int_equal(err.status, EXIT_LOST);
	assert_non_null(strstr(err.text, "remote process exited (what NCCL says)"));
	assert_true(wait_for(60, ncclInvalidUsage, ncclSuccess, 60, &err) < 20);
	assert_int_equal(err.status, EXIT_FAULT);
	assert_non_null(strstr(err.text, "nccl: couldn't go on: invalid usage"));
}

/* The real library, on whatever machine this is: it loads or says why not, and so does the driver.
 */
static void the_real_library_is_found_or_its_absence_explained(void **state)
{
	struct err err = { 0 };
	const struct nccl_library *nccl = nccl_library_load(&err);
	int version = 0;
	if (!nccl) {
		assert_int_equal(err.status, EXIT_USAGE);
		assert_non_null(strstr(err.text, "LD_LIBRARY_PATH"));
		return;
	}
	assert_int_equal(nccl->get_version(&version), ncclSuccess);
	assert_true(version >= 20000);
	assert_true(nccl->count_gpus(&err) >= 0 || strstr(err.text, "--gpus-per-task=1"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_ranks_get_a_communicator),
		cmocka_unit_test(what_a_rank_lacks_is_told_by_all_at_once),
		cmocka_unit_test(a_rank_that_can_not_connect_is_told_by_all),
		cmocka_unit_test(a_connecting_that_never_ends_is_aborted),
		cmocka_unit_test(a_dead_rank_is_named_by_the_deadline),
		cmocka_unit_test(an_end_that_hangs_becomes_an_abort),
		cmocka_unit_test(a_collective_is_waited_for_until_the_deadline),
		cmocka_unit_test(the_real_library_is_found_or_its_absence_explained),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
