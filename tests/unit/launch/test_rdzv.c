/* SPDX-License-Identifier: Apache-2.0 */
/* Rendezvous without a launcher: the file provider among forked processes, the single one, and the
 * choice of provider. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/clock.h"
#include "launch/rdzv.h"
#include "tests/unit/files.h"
#include "tests/unit/hang.h"
#ifdef HAVE_PMIX
#include "launch/pmix_library.h"
#endif

#define WORLD 5

static char folder[FILES_PATH_SIZE];

static struct ident ident_of(int rank, int world_size)
{
	struct ident ident = { .rank = rank,
		.world_size = world_size,
		.local_world_size = 1,
		.node_rank = rank,
		.node_count = world_size,
		.source = "torchrun" };
	snprintf(ident.node, sizeof ident.node, "node%d", rank);
	return ident;
}

static int set_up(void **state)
{
	assert_int_equal(files_make_folder(folder), 0);
	setenv("MUSTER_RDZV_DIR", folder, 1);
	setenv("MUSTER_RDZV_ID", "run1", 1);
	unsetenv("MUSTER_RDZV");
	return 0;
}

static int tear_down(void **state)
{
	return files_remove_folder(folder);
}

/* Runs `body` as each of the ranks but `absent`; a body returns 0 when all was as it should be. */
static void as_ranks(int world_size, int absent, int (*body)(int rank))
{
	pid_t pids[WORLD];
	for (int rank = 0; rank < world_size; rank++) {
		pids[rank] = rank == absent ? -1 : fork();
		if (pids[rank] == 0)
			_exit(body(rank));
	}
	for (int rank = 0; rank < world_size; rank++) {
		int status = 0;
		if (pids[rank] > 0)
			assert_int_equal(waitpid(pids[rank], &status, 0), pids[rank]);
		assert_int_equal(status, 0);
	}
}

#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "# line %d: %s: %s\n", __LINE__, #condition, err.text); \
			return 1; \
		} \
	} while (0)

/* The value of a rank differs in size and content from every other, from none to the most that is
 * allowed. */
static size_t value_of(int rank, unsigned char *value)
{
	static const size_t sizes[WORLD] = { 0, 1, 128, 65536, 7 };
	for (size_t i = 0; i < sizes[rank]; i++)
		value[i] = (unsigned char)(i * 31 + (size_t)rank * 7);
	return sizes[rank];
}

/* Fences of PMIx. */
static int pmix_fences;
#ifdef HAVE_PMIX
static __typeof__(PMIx_Fence_nb) *real_fence;

static pmix_status_t counted_fence(const pmix_proc_t procs[], size_t count,
	const pmix_info_t info[], size_t infos, pmix_op_cbfunc_t done, void *arg)
{
	pmix_fences++;
	return real_fence(procs, count, info, infos, done, arg);
}
#endif

/* From now on. */
static void count_fences(const char *provider)
{
#ifdef HAVE_PMIX
	struct err err;
	if (strcmp(provider, "pmix") != 0 || real_fence || pmix_library_load(&err) < 0)
		return;
	real_fence = pmix_library.fence_nb;
	pmix_library.fence_nb = counted_fence;
#endif
}

/* One a round, whatever the values; none under Slurm, where so few ranks gather by themselves. */
static int fences_expected(const char *provider)
{
	const char *namespace = getenv("PMIX_NAMESPACE");
	bool gathers = namespace && strncmp(namespace, "slurm.", 6) == 0;
	return strcmp(provider, "pmix") != 0 || gathers ? 0 : 3;
}

static int exchange_values(const struct ident *ident, const char *provider)
{
	static unsigned char mine[65536];
	struct err err = { 0 };
	count_fences(provider);
	struct rdzv *rdzv = rdzv_open(ident, NULL, 20, &err);
	int rank = ident->rank;
	CHECK(rdzv && strcmp(rdzv_provider(rdzv), provider) == 0);
	for (int round = 0; round < 3; round++) {
		char key[16];
		snprintf(key, sizeof key, "v.%d", round);
		CHECK(rdzv_put(rdzv, key, mine, value_of(rank, mine), &err) == 0);
		CHECK(rdzv_fence(rdzv, 0, &err) == 0);
		for (int peer = 0; peer < WORLD; peer++) {
			void *value;
			size_t size, want = value_of(peer, mine);
			CHECK(rdzv_get(rdzv, peer, key, &value, &size, 0, &err) == 0);
			CHECK(size == want && memcmp(value, mine, want) == 0 && ((char *)value)[size] == '\0');
			free(value);
		}
	}
	CHECK(pmix_fences == fences_expected(provider));
	rdzv_close(rdzv, 1);
	return 0;
}

static int all_to_all(int rank)
{
	struct ident ident = ident_of(rank, WORLD);
	return exchange_values(&ident, "file");
}

static void every_value_reaches_every_rank(void **state)
{
	as_ranks(WORLD, -1, all_to_all);
	/* The last to leave takes the run's folder along: only then is the folder empty and can be
	 * removed. */
	assert_int_equal(rmdir(folder), 0);
	assert_int_equal(mkdir(folder, 0700), 0);
}

/* How many files the run's folder has. */
static int count_files(void)
{
	glob_t found;
	char pattern[sizeof folder + 8];
	snprintf(pattern, sizeof pattern, "%s/*/*", folder);
	int count = glob(pattern, 0, NULL, &found) == 0 ? (int)found.gl_pathc : 0;
	globfree(&found);
	return count;
}

static int pass_values(int rank)
{
	struct ident ident = ident_of(rank, WORLD);
	struct err err = { 0 };
	struct rdzv *rdzv = rdzv_open(&ident, NULL, 20, &err);
	CHECK(rdzv && rdzv_put(rdzv, "kept", "abc", 3, &err) == 0);
	for (int round = 0; round < 20; round++) {
		char key[16], text[16];
		void *value;
		size_t size;
		snprintf(key, sizeof key, "v.%d", round);
		snprintf(text, sizeof text, "%d of %d", round, rank);
		CHECK(rdzv_put_passing(rdzv, key, text, strlen(text), &err) == 0);
		CHECK(rdzv_fence(rdzv, 0, &err) == 0);
		for (int peer = 0; peer < WORLD; peer++) {
			snprintf(text, sizeof text, "%d of %d", round, peer);
			CHECK(rdzv_get_passing(rdzv, peer, key, &value, &size, 0, &err) == 0);
			CHECK(strcmp(value, text) == 0);
			free(value);
			CHECK(rdzv_get(rdzv, peer, "kept", &value, &size, 0, &err) == 0);
			free(value);
		}
	}
	/* Of each rank: its line, what it keeps, and marks and values of three rounds. */
	CHECK(count_files() <= WORLD * (2 + 3 * 2) + 1 + 3);
	rdzv_close(rdzv, 1);
	return 0;
}

static void files_of_passing_values_go(void **state)
{
	as_ranks(WORLD, -1, pass_values);
}

static int open_without_rank_3(int rank)
{
	struct err err = { 0 };
	struct ident ident = ident_of(rank, WORLD);
	double start = clock_now();
	CHECK(!rdzv_open(&ident, NULL, 0.5, &err));
	CHECK(clock_now() - start < HANG_SECONDS / 2.0);
	CHECK(err.status == EXIT_LOST && strstr(err.text, "1 of 5 ranks")
		&& strstr(err.text, "rank 3 did not come"));
	return 0;
}

static void a_rank_that_never_starts_is_named(void **state)
{
	as_ranks(WORLD, 3, open_without_rank_3);
}

/* Rank 2 comes to the first two fences and not to the third; `stay` keeps it alive meanwhile. */
static int lose_rank_2(const struct ident *ident, const char *node, unsigned stay)
{
	struct err err = { 0 };
	struct rdzv *rdzv = rdzv_open(ident, NULL, 20, &err);
	CHECK(rdzv && rdzv_fence(rdzv, 0, &err) == 0);
	if (ident->rank == 2) {
		sleep(stay);
		return 0;
	}
	CHECK(rdzv_fence(rdzv, 0.5, &err) == -1);
	CHECK(err.status == EXIT_LOST && strstr(err.text, "1 of 5 ranks") && strstr(err.text, node));
	rdzv_close(rdzv, 0);
	return 0;
}

static int fence_without_rank_2(int rank)
{
	struct ident ident = ident_of(rank, WORLD);
	return lose_rank_2(&ident, "rank 2 (on node2) did not come", 0);
}

static void a_rank_lost_later_is_named_with_its_node(void **state)
{
	as_ranks(WORLD, -1, fence_without_rank_2);
}

/* Rank 1 leaves before the fence, where it gives its reason with an abort. */
static int leave_as_rank_1(int rank, const char *abort, const char *told)
{
	struct err err = { 0 };
	struct ident ident = ident_of(rank, WORLD);
	struct rdzv *rdzv = rdzv_open(&ident, NULL, HANG_SECONDS, &err);
	double start = clock_now();
	if (rank == 1) {
		CHECK(rdzv);
		if (abort)
			rdzv_abort(rdzv, 1, abort);
		rdzv_close(rdzv, 0);
		return 0;
	}
	/* Rank 1 may be gone before this one has seen that all are here. */
	CHECK(!rdzv || rdzv_fence(rdzv, HANG_SECONDS, &err) == -1);
	CHECK(clock_now() - start < HANG_SECONDS / 2.0);
	CHECK(err.status == EXIT_LOST && strstr(err.text, told));
	rdzv_close(rdzv, 0);
	return 0;
}

static int abort_by_rank_1(int rank)
{
	return leave_as_rank_1(rank, "out of tokens", "rank 1 gave up: out of tokens");
}

static void an_abort_ends_the_fences_of_the_others(void **state)
{
	as_ranks(WORLD, -1, abort_by_rank_1);
}

static int end_of_rank_1(int rank)
{
	return leave_as_rank_1(rank, NULL, "rank 1 gave up: it has ended in error");
}

static void so_does_a_rank_that_ends_in_error(void **state)
{
	as_ranks(WORLD, -1, end_of_rank_1);
}

/* The next look for this name, if no rank has given up by then, doesn't find it; and the answer
 * comes late, when the folder has the name, and "abort" too. */
static const char *late_name;

/* In place of libc's. */
int faccessat(int dir, const char *name, int mode, int flags)
{
	bool late = false;
	if (late_name && strcmp(name, late_name) == 0)
		for (late_name = NULL; syscall(SYS_faccessat, dir, "abort", F_OK) < 0; usleep(1000))
			late = true;
	if (!late)
		return (int)syscall(SYS_faccessat, dir, name, mode);
	errno = ENOENT;
	return -1;
}

static int leave_after_the_fence(int rank)
{
	struct err err = { 0 };
	struct ident ident = ident_of(rank, WORLD);
	struct rdzv *rdzv = rdzv_open(&ident, NULL, HANG_SECONDS, &err);
	CHECK(rdzv);
	late_name = rank == 2 ? "all.0" : NULL;
	CHECK(rdzv_fence(rdzv, 0, &err) == 0);
	CHECK(!late_name);
	rdzv_close(rdzv, rank != 1);
	return 0;
}

static void who_leaves_after_a_fence_does_not_end_it(void **state)
{
	as_ranks(WORLD, -1, leave_after_the_fence);
}

static int open_as_world_of_rank_plus_1(int rank)
{
	struct err err = { 0 };
	struct ident ident = ident_of(rank, rank + 1);
	CHECK(!rdzv_open(&ident, "file", 0.5, &err));
	CHECK(err.status == EXIT_FAULT && strstr(err.text, "rank 0 says 1, rank 1 says 2"));
	return 0;
}

static void different_world_sizes_are_told_apart(void **state)
{
	/* Rank 0 thinks that it is alone and leaves nothing to wait for; rank 1 sees what it said. */
	struct ident alone = ident_of(0, 1);
	struct err err = { 0 };
	struct rdzv *rdzv = rdzv_open(&alone, "file", 1, &err);
	assert_non_null(rdzv);
	assert_int_equal(open_as_world_of_rank_plus_1(1), 0);
	rdzv_close(rdzv, 0);
}

/* Rank 2 believes in a world of four. */
static int one_disagrees(int rank)
{
	struct err err = { 0 };
	struct ident ident = ident_of(rank, rank == 2 ? 4 : 3);
	double start = clock_now();
	CHECK(!rdzv_open(&ident, NULL, HANG_SECONDS, &err));
	CHECK(clock_now() - start < HANG_SECONDS / 2.0);
	CHECK(strstr(err.text, "couldn't agree on the world size: rank 2 says 4, rank 0 says 3"));
	CHECK(rank == 0 ? err.status == EXIT_FAULT : strstr(err.text, "rank 0 gave up: ") != NULL);
	return 0;
}

static void a_disagreement_ends_all_at_once(void **state)
{
	as_ranks(3, -1, one_disagrees);
}

/* Rank 0 comes to the second fence and dies before it can say that all have. */
static int fence_without_a_leader(int rank)
{
	struct err err = { 0 };
	struct ident ident = ident_of(rank, 3);
	struct rdzv *rdzv = rdzv_open(&ident, NULL, HANG_SECONDS, &err);
	CHECK(rdzv && rdzv_fence(rdzv, 0, &err) == 0);
	if (rank == 0) {
		char path[200];
		snprintf(path, sizeof path, "%s/muster-run1-0.0/fence.1.0", folder);
		CHECK(mknod(path, S_IFREG | 0600, 0) == 0);
		return 0;
	}
	CHECK(rdzv_fence(rdzv, 1, &err) == 0);
	/* To the next one it does not come. */
	CHECK(rdzv_fence(rdzv, 1.5, &err) == -1);
	CHECK(strstr(err.text, "1 of 3 ranks") && strstr(err.text, "rank 0 (on node0) did not come"));
	rdzv_close(rdzv, 0);
	return 0;
}

static void the_others_can_do_without_rank_0(void **state)
{
	as_ranks(3, -1, fence_without_a_leader);
}

static void a_used_id_is_refused_and_a_new_attempt_is_not(void **state)
{
	struct ident ident = ident_of(0, 1);
	struct err err = { 0 };
	rdzv_close(rdzv_open(&ident, "file", 1, &err), 0);
	assert_null(rdzv_open(&ident, "file", 1, &err));
	assert_int_equal(err.status, EXIT_FAULT);
	assert_non_null(strstr(err.text, "MUSTER_RDZV_ID"));
	ident.attempt = 1;
	struct rdzv *rdzv = rdzv_open(&ident, "file", 1, &err);
	assert_non_null(rdzv);
	rdzv_close(rdzv, 1);
}

static void without_an_id_nothing_is_guessed(void **state)
{
	struct ident ident = ident_of(0, 1);
	struct err err = { 0 };
	unsetenv("MUSTER_RDZV_ID");
	assert_null(rdzv_open(&ident, "file", 1, &err));
	assert_int_equal(err.status, EXIT_USAGE);
	assert_non_null(strstr(err.text, "set MUSTER_RDZV_ID"));
	ident.job = 12;
	struct rdzv *rdzv = rdzv_open(&ident, "file", 1, &err);
	assert_non_null(rdzv);
	rdzv_close(rdzv, 1);
}

static void single_forgets_what_is_passing(void **state)
{
	struct ident ident = ident_of(0, 1);
	struct err err = { 0 };
	void *value;
	size_t size;
	struct rdzv *rdzv = rdzv_open(&ident, "single", 1, &err);
	assert_int_equal(rdzv_put(rdzv, "kept", "abc", 3, &err), 0);
	for (int round = 0; round < 4; round++) {
		char key[2] = { (char)('a' + round), '\0' }, before[2] = { (char)('a' + round - 1), '\0' };
		assert_int_equal(rdzv_put_passing(rdzv, key, "xyz", 3, &err), 0);
		assert_int_equal(rdzv_fence(rdzv, 0, &err), 0);
		assert_int_equal(rdzv_get_passing(rdzv, 0, key, &value, &size, 0, &err), 0);
		assert_memory_equal(value, "xyz", 3);
		free(value);
		assert_int_equal(rdzv_get_passing(rdzv, 0, before, &value, &size, 0, &err), -1);
		assert_int_equal(rdzv_get(rdzv, 0, "kept", &value, &size, 0, &err), 0);
		free(value);
	}
	rdzv_close(rdzv, 1);
}

static void single_keeps_its_own_values(void **state)
{
	struct ident ident = ident_of(0, 1);
	struct err err = { 0 };
	void *value;
	size_t size;
	struct rdzv *rdzv = rdzv_open(&ident, "single", 1, &err);
	assert_non_null(rdzv);
	assert_int_equal(rdzv_put(rdzv, "a", "xyz", 3, &err), 0);
	assert_int_equal(rdzv_put(rdzv, "b", NULL, 0, &err), 0);
	assert_int_equal(rdzv_put(rdzv, "a", "xyz", 3, &err), -1);
	assert_int_equal(rdzv_put(rdzv, "a key", "xyz", 3, &err), -1);
	assert_int_equal(rdzv_put(rdzv, "large", folder, 65537, &err), -1);
	assert_int_equal(rdzv_fence(rdzv, 0, &err), 0);
	assert_int_equal(rdzv_get(rdzv, 0, "a", &value, &size, 0, &err), 0);
	assert_int_equal(size, 3);
	assert_memory_equal(value, "xyz", 3);
	free(value);
	assert_int_equal(rdzv_get(rdzv, 0, "b", &value, &size, 0, &err), 0);
	assert_int_equal(size, 0);
	free(value);
	/* A text can be used as it comes, whatever the memory held before. */
	char text[200], *used = malloc(sizeof text + 1);
	memset(text, 'x', sizeof text);
	assert_int_equal(rdzv_put(rdzv, "text", text, sizeof text, &err), 0);
	for (size_t i = 0; i <= sizeof text; i++)
		((volatile char *)used)[i] = 'x';
	free(used);
	assert_int_equal(rdzv_get(rdzv, 0, "text", &value, &size, 0, &err), 0);
	assert_int_equal(((char *)value)[size], '\0');
	free(value);
	assert_int_equal(rdzv_get(rdzv, 1, "a", &value, &size, 0, &err), -1);
	assert_int_equal(rdzv_get(rdzv, 0, "c", &value, &size, 0, &err), -1);
	rdzv_close(rdzv, 1);
}

static void refused(const char *source, int world_size, const char *provider, const char *word)
{
	struct ident ident = ident_of(0, world_size);
	struct err err = { 0 };
	ident.source = source;
	assert_null(rdzv_open(&ident, provider, 1, &err));
	assert_int_equal(err.status, EXIT_USAGE);
	assert_non_null(strstr(err.text, word));
}

static void what_does_not_fit_is_refused_with_a_remedy(void **state)
{
	unsetenv("MUSTER_RDZV_DIR");
	refused("slurm", 8, NULL, "PMIx");
	refused("torchrun", 8, NULL, "MUSTER_RDZV_DIR");
	refused("torchrun", 8, "single", "8 ranks");
	refused("torchrun", 8, "file", "set MUSTER_RDZV_DIR");
	refused("torchrun", 8, "pmix", "PMIx");
	refused("slurm", 8, NULL, "--mpi=pmi2");
	refused("slurm", 8, "pmi2", "not started under PMI2");
	refused("pmi2", 8, "pmix", "PMIx");
	refused("single", 1, "carrier-pigeon", "one of pmix, pmi2, file, single");
	setenv("MUSTER_RDZV", "semaphore", 1);
	refused("single", 1, NULL, "semaphore");
	unsetenv("MUSTER_RDZV");
}

/* In its first attempt rank 2 leaves without a farewell to PMIx, which then has Slurm kill the
 * others. */
static int leave_suddenly(const struct ident *ident, int killed)
{
	struct err err = { 0 };
	struct rdzv *rdzv = rdzv_open(ident, NULL, 20, &err);
	CHECK(rdzv);
	if (ident->attempt == 0 && ident->rank == 2 && killed)
		raise(SIGKILL);
	if (ident->attempt == 0 && ident->rank == 2)
		_exit(1);
	if (ident->attempt == 0)
		rdzv_fence(rdzv, 20, &err);
	rdzv_close(rdzv, 1);
	return 0;
}

/* Under srun --mpi=pmix or pmi2 (tests/cluster/plugin.bats, pmi2.bats): this process is one of five
 * ranks. */
static int as_launched(const char *mode)
{
	struct err err = { 0 };
	struct ident ident;
	CHECK(ident_discover(&ident, &err) == 0);
	CHECK(ident.world_size == WORLD);
	if (strcmp(mode, "values") == 0)
		return exchange_values(&ident, ident.source);
	if (strcmp(mode, "killed") == 0 || strcmp(mode, "exits") == 0)
		return leave_suddenly(&ident, strcmp(mode, "killed") == 0);
	bool killed = strcmp(ident.source, "pmix") == 0;
	int rc = lose_rank_2(&ident, mode, killed ? 9 : 0);
	/* The first one that leaves PMIx has its peers killed: let all of them look. */
	sleep(killed ? 2 : 0);
	if (ident.rank != 2 && rc == 0)
		printf("rank %d named the lost one\n", ident.rank);
	return rc;
}

int main(int argc, char **argv)
{
	if (argc == 2)
		return as_launched(argv[1]);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(every_value_reaches_every_rank, set_up, tear_down),
		cmocka_unit_test_setup_teardown(files_of_passing_values_go, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_rank_that_never_starts_is_named, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_rank_lost_later_is_named_with_its_node, set_up,
			tear_down),
		cmocka_unit_test_setup_teardown(an_abort_ends_the_fences_of_the_others, set_up, tear_down),
		cmocka_unit_test_setup_teardown(so_does_a_rank_that_ends_in_error, set_up, tear_down),
		cmocka_unit_test_setup_teardown(who_leaves_after_a_fence_does_not_end_it, set_up,
			tear_down),
		cmocka_unit_test_setup_teardown(different_world_sizes_are_told_apart, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_disagreement_ends_all_at_once, set_up, tear_down),
		cmocka_unit_test_setup_teardown(the_others_can_do_without_rank_0, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_used_id_is_refused_and_a_new_attempt_is_not, set_up,
			tear_down),
		cmocka_unit_test_setup_teardown(without_an_id_nothing_is_guessed, set_up, tear_down),
		cmocka_unit_test_setup_teardown(single_keeps_its_own_values, set_up, tear_down),
		cmocka_unit_test_setup_teardown(single_forgets_what_is_passing, set_up, tear_down),
		cmocka_unit_test_setup_teardown(what_does_not_fit_is_refused_with_a_remedy, set_up,
			tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
