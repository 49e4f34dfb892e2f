/* SPDX-License-Identifier: Apache-2.0 */
/* The exchange around an NCCL communicator among several processes, with NCCL's own unique ids
 * where this build has NCCL: they can be made without a GPU. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "launch/nccl_exchange.h"
#include "tests/unit/hang.h"
#include "tests/unit/launch/meeting_fixture.h"
#ifdef HAVE_NCCL
#include "launch/nccl_library.h"
#endif

#define WORLD 5
#define OWN_VERSION 22809

/* A unique id, and what NCCL it is of. */
static int make_id(int *version, void *id, struct err *err)
{
#ifdef HAVE_NCCL
	const struct nccl_library *nccl = nccl_library_load(err);
	ncclResult_t result;
	if (!nccl)
		return -1;
	if ((result = nccl->get_unique_id(id)) != ncclSuccess
		|| (result = nccl->get_version(version)) != ncclSuccess)
		return err_set(err, "%s: %s", nccl->get_error_string(result), nccl->get_last_error(NULL));
#else
	for (int i = 0; i < NCCL_EXCHANGE_ID; i++)
		((unsigned char *)id)[i] = (unsigned char)(i * 7 + 1); /* zeros and newlines too */
	*version = OWN_VERSION;
#endif
	return 0;
}

/* Skips where NCCL is compiled for, but not installed. */
static void need_nccl(void)
{
#ifdef HAVE_NCCL
	struct err err;
	if (nccl_library_load(&err))
		return;
	print_message("# SKIP %s\n", err.text);
	skip();
#endif
}

static int share_id(struct rdzv *rdzv, const struct ident *ident, struct meeting_rank *mine,
	struct err *err)
{
	unsigned char id[NCCL_EXCHANGE_ID], again[NCCL_EXCHANGE_ID];
	struct nccl_offer offer = { 0 };
	if (make_id(&offer.version, id, err) < 0)
		return -1;
	offer.id = ident->rank == 0 ? id : NULL;
	if (nccl_exchange(rdzv, ident, 0, &offer, 20, mine->value, err) < 0
		|| nccl_exchange(rdzv, ident, 1, &offer, 20, again, err) < 0
		|| memcmp(again, mine->value, sizeof again) != 0)
		return -1;
	if (ident->rank == 0 && memcmp(id, mine->value, sizeof id) != 0)
		return err_set(err, "rank 0 got another id than its own");
	return nccl_settle(rdzv, ident, 0, NULL, 20, err);
}

static int count_one(struct rdzv *rdzv, const struct ident *ident, struct meeting_rank *mine,
	struct err *err)
{
	unsigned char id[NCCL_EXCHANGE_ID] = { 1 };
	const struct nccl_offer offer = { .version = OWN_VERSION, .id = ident->rank == 0 ? id : NULL };
	struct meeting_count before = meeting_count(ident->rank);
	if (nccl_exchange(rdzv, ident, 0, &offer, 20, mine->value, err) < 0)
		return -1;
	struct meeting_count after = meeting_count(ident->rank);
	if (before.puts != 0 || before.fences != 0 || after.puts != 1 || after.fences != 1)
		return err_set(err, "%d puts and %d fences", after.puts - before.puts,
			after.fences - before.fences);
	/* Nobody removes the folder while another counts. */
	return rdzv_fence(rdzv, 20, err);
}

static void the_exchange_is_one_put_and_one_fence_in_any_world(void **state)
{
	struct meeting_rank ranks[MEETING_MAX];
	for (int size = 1; size <= MEETING_MAX; size *= 2) {
		meeting_run(size, count_one, ranks);
		for (int rank = 0; rank < size; rank++)
			if (ranks[rank].rc != 0)
				fail_msg("rank %d of %d: %s", rank, size, ranks[rank].err.text);
	}
}

static void every_rank_gets_the_id_of_rank_0(void **state)
{
	static const unsigned char none[NCCL_EXCHANGE_ID];
	struct meeting_rank ranks[WORLD];
	need_nccl();
	meeting_run(WORLD, share_id, ranks);
	for (int rank = 0; rank < WORLD; rank++) {
		if (ranks[rank].rc != 0)
			fail_msg("rank %d: %s", rank, ranks[rank].err.text);
		assert_memory_equal(ranks[rank].value, ranks[0].value, NCCL_EXCHANGE_ID);
	}
	assert_memory_not_equal(ranks[0].value, none, NCCL_EXCHANGE_ID);
}

static void all_say(const struct meeting_rank *ranks, enum exit_status status, const char *text)
{
	for (int rank = 0; rank < WORLD; rank++) {
		assert_int_equal(ranks[rank].rc, -1);
		assert_int_equal(ranks[rank].err.status, status);
		assert_string_equal(ranks[rank].err.text, text);
		assert_true(ranks[rank].seconds < HANG_SECONDS / 2.0);
	}
}

static int failing_rank;

static int fail_one(struct rdzv *rdzv, const struct ident *ident, struct meeting_rank *mine,
	struct err *err)
{
	unsigned char id[NCCL_EXCHANGE_ID] = "id";
	struct err failure;
	struct nccl_offer offer = { .version = OWN_VERSION, .id = ident->rank == 0 ? id : NULL };
	err_fail(&failure, EXIT_USAGE, "nccl: couldn't find a GPU: ask for one");
	if (ident->rank == failing_rank)
		offer.failure = &failure;
	return nccl_exchange(rdzv, ident, 0, &offer, 20, mine->value, err);
}

static void a_failure_of_rank_0_is_the_failure_of_all(void **state)
{
	struct meeting_rank ranks[WORLD];
	failing_rank = 0;
	meeting_run(WORLD, fail_one, ranks);
	all_say(ranks, EXIT_USAGE, "rank 0 (on n0): nccl: couldn't find a GPU: ask for one");
}

static void so_is_that_of_another_rank(void **state)
{
	struct meeting_rank ranks[WORLD];
	failing_rank = 3;
	meeting_run(WORLD, fail_one, ranks);
	all_say(ranks, EXIT_USAGE, "rank 3 (on n3): nccl: couldn't find a GPU: ask for one");
}

static int differ(struct rdzv *rdzv, const struct ident *ident, struct meeting_rank *mine,
	struct err *err)
{
	unsigned char id[NCCL_EXCHANGE_ID] = "id";
	const struct nccl_offer offer = { .version = ident->rank == 2 ? 22703 : OWN_VERSION,
		.id = ident->rank == 0 ? id : NULL };
	return nccl_exchange(rdzv, ident, 0, &offer, 20, mine->value, err);
}

static void another_version_is_refused_with_both_named(void **state)
{
	struct meeting_rank ranks[WORLD];
	meeting_run(WORLD, differ, ranks);
	all_say(ranks, EXIT_USAGE,
		"nccl: rank 2 (on n2) has NCCL 2.27.3, rank 0 (on n0) has 2.28.9: give all nodes the same "
		"(module, container, LD_LIBRARY_PATH)");
}

/* What three ranks came to: one lost its peers, one has a reason of its own. */
static int settle_badly(struct rdzv *rdzv, const struct ident *ident, struct meeting_rank *mine,
	struct err *err)
{
	struct err lost, own;
	err_fail(&lost, EXIT_LOST, "nccl: a peer closed its connection");
	err_fail(&own, EXIT_FAULT, "nccl: out of GPU memory");
	return nccl_settle(rdzv, ident, 0,
		ident->rank == 1       ? &lost
			: ident->rank == 4 ? &own
							   : NULL,
		20, err);
}

static void the_cause_is_told_before_its_consequences(void **state)
{
	struct meeting_rank ranks[WORLD];
	meeting_run(WORLD, settle_badly, ranks);
	all_say(ranks, EXIT_FAULT, "rank 4 (on n4): nccl: out of GPU memory");
}

static int leave_rank_2_out(struct rdzv *rdzv, const struct ident *ident, struct meeting_rank *mine,
	struct err *err)
{
	struct err late;
	err_fail(&late, EXIT_LOST, "nccl: couldn't connect all 5 ranks within 1 s");
	return ident->rank == 2 ? -1 : nccl_settle(rdzv, ident, 0, &late, 0.5, err);
}

static void a_rank_that_does_not_settle_is_named(void **state)
{
	struct meeting_rank ranks[WORLD];
	meeting_run(WORLD, leave_rank_2_out, ranks);
	for (int rank = 0; rank < WORLD; rank++) {
		if (rank == 2)
			continue;
		assert_int_equal(ranks[rank].err.status, EXIT_LOST);
		assert_non_null(strstr(ranks[rank].err.text,
			"within 1 s: rendezvous: couldn't meet 1 of 5 ranks within 0.5 s: rank 2 (on n2) did "
			"not come"));
	}
}

static const char *garbage;
static size_t garbage_size;

/* Rank 0 publishes what no build of ours does. */
static int publish_garbage(struct rdzv *rdzv, const struct ident *ident, struct meeting_rank *mine,
	struct err *err)
{
	const struct nccl_offer offer = { .version = OWN_VERSION };
	if (ident->rank != 0)
		return nccl_exchange(rdzv, ident, 0, &offer, 20, mine->value, err);
	if (rdzv_put(rdzv, "nccl-id.0", garbage, garbage_size, err) < 0
		|| rdzv_fence(rdzv, 20, err) < 0)
		return 1;
	return -1;
}

static void what_is_no_word_of_ours_is_refused(void **state)
{
	static char large[5000];
	const struct {
		const char *text;
		size_t size;
	} cases[] = {
		{ "", 0 },
		{ "0 22809 n0", 10 },
		{ "zero 22809 n0\n", 14 },
		{ "0 22809 n0\nid", 13 },
		{ "0 22809 \n", 9 },
		{ large, sizeof large },
	};
	struct meeting_rank ranks[2];
	memset(large, 'x', sizeof large);
	memcpy(large, "0 22809 n0\n", 11);
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		garbage = cases[i].text;
		garbage_size = cases[i].size;
		meeting_run(2, publish_garbage, ranks);
		assert_int_equal(ranks[0].rc, -1);
		assert_int_equal(ranks[1].rc, -1);
		assert_non_null(strstr(ranks[1].err.text, "rank 0"));
		assert_non_null(strstr(ranks[1].err.text, "the same build of Muster"));
	}
}

/* Under srun --mpi=pmix (tests/cluster/libmuster.bats): this process is one rank. "share": the id
 * reaches all; "fail": the failure of rank 1 does. */
static int as_launched(const char *mode)
{
	struct err err = { 0 };
	struct ident ident;
	struct meeting_rank mine = { 0 };
	failing_rank = 1;
	struct rdzv *rdzv = ident_discover(&ident, &err) < 0 ? NULL : rdzv_open(&ident, NULL, 30, &err);
	int rc = !rdzv                   ? -1
		: strcmp(mode, "share") == 0 ? share_id(rdzv, &ident, &mine, &err)
									 : fail_one(rdzv, &ident, &mine, &err);
	printf("%s", rc < 0 ? err.text : "id ");
	for (size_t i = 0; rc == 0 && i < sizeof mine.value; i++)
		printf("%02x", mine.value[i]);
	printf("\n");
	fflush(stdout);
	if (rdzv)
		rdzv_fence(rdzv, 10, NULL);
	rdzv_close(rdzv, 1);
	return rc < 0;
}

int main(int argc, char **argv)
{
	if (argc == 2)
		return as_launched(argv[1]);
	/* Of all machines' interfaces loopback is always there; NCCL takes it only when told so. */
	setenv("NCCL_SOCKET_IFNAME", "lo", 1);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_rank_gets_the_id_of_rank_0),
		cmocka_unit_test(the_exchange_is_one_put_and_one_fence_in_any_world),
		cmocka_unit_test(a_failure_of_rank_0_is_the_failure_of_all),
		cmocka_unit_test(so_is_that_of_another_rank),
		cmocka_unit_test(another_version_is_refused_with_both_named),
		cmocka_unit_test(the_cause_is_told_before_its_consequences),
		cmocka_unit_test(a_rank_that_does_not_settle_is_named),
		cmocka_unit_test(what_is_no_word_of_ours_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
