/* SPDX-License-Identifier: Apache-2.0 */
/* The way over nodes, which is arithmetic only: who owns and who carries what, and how many bytes
 * leave a node. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "tests/fakes/counting_network.h"
#include "tests/unit/trainer/comm/world_fixture.h"
#include "tests/unit/trainer/ddp/ddp_work.h"
#include "trainer/ddp/ddp_private.h"

/* ---- who has what ---- */

/* On each node each position is carried once, each rank carries a run of them, and the rank of the
 * column is the one that has its positions. */
static void check_carriers(const struct ddp_nodes *nodes)
{
	for (int node = 0; node < nodes->count; node++) {
		int next = 0;

		for (int rank = nodes->begin[node]; rank < nodes->begin[node + 1]; rank++) {
			int first, end, own = nodes->position[rank];

			ddp_nodes_carried(nodes, rank, &first, &end);
			assert_int_equal(first, next);
			assert_true(first <= own && own < end);
			for (; next < end; next++) {
				int column = ddp_nodes_column(nodes, nodes->owner[next]);
				assert_int_equal(ddp_nodes_carrier(nodes, node, column), rank);
			}
		}
		assert_int_equal(next, nodes->world);
	}
}

static void check_world(int world, const int *numbers, int count)
{
	struct ddp_nodes nodes;
	struct err err;

	assert_int_equal(ddp_nodes_make(&nodes, world, numbers, &err), 0);
	assert_int_equal(nodes.count, count);
	assert_int_equal(nodes.rank[0], 0);
	for (int rank = 0; rank < world; rank++) {
		assert_int_equal(nodes.rank[nodes.place[rank]], rank);
		for (int other = 0; count < world && other < world; other++)
			assert_int_equal(numbers[rank] == numbers[other],
				nodes.node_of[nodes.place[rank]] == nodes.node_of[nodes.place[other]]);
	}
	for (int rank = 0; rank < world; rank++)
		assert_int_equal(nodes.owner[nodes.position[rank]], rank);
	check_carriers(&nodes);
	ddp_nodes_clear(&nodes);
}

/* All ways to put up to ten ranks on nodes that follow each other: a bit for each rank that begins
 * a node. */
static void test_all_layouts(void **state)
{
	(void)state;
	for (int world = 1; world <= 10; world++)
		for (unsigned int begins = 0; begins < 1u << (world - 1); begins++) {
			int numbers[10] = { 0 }, count = 1;

			for (int rank = 1; rank < world; rank++) {
				numbers[rank] = numbers[rank - 1] + (begins >> (rank - 1) & 1);
				count = numbers[rank] + 1;
			}
			check_world(world, numbers, count == 1 ? world : count);
		}
}

static void test_ranks_out_of_order(void **state)
{
	(void)state;
	check_world(4, (const int[]) { 0, 1, 0, 1 }, 2);
	check_world(5, (const int[]) { 3, 3, 1, 1, 3 }, 2);
	check_world(6, (const int[]) { 2, 0, 1, 2, 0, 1 }, 3);
	check_world(4, (const int[]) { 7, 7, 2, 2 }, 2);
}

/* ---- bytes ---- */

struct ddp_bytes {
	uint64_t inside, outside; /* of its node; sent by a rank in a step */
};

static void count_sent(const struct ddp *ddp, int begin, int end, struct ddp_bytes *sent)
{
	const struct ddp_nodes *nodes = &ddp->nodes;

	for (int i = begin; i < end; i++)
		if (!ddp->transfers[i].receive)
			*(nodes->node_of[nodes->place[ddp->transfers[i].peer]] == nodes->node_of[ddp->plan.rank]
					? &sent->inside
					: &sent->outside) += ddp->transfers[i].bytes;
}

/* The transfers of a step, as they are queued. */
static struct ddp_bytes sent_in_step(struct ddp *ddp)
{
	struct ddp_bytes sent = { 0 };

	for (int i = 0; i < ddp->bucket_count; i++) {
		const struct ddp_bucket *bucket = &ddp->buckets[i];
		int slots = 0;

		for (tree_rank_slots(ddp->plan.slots, ddp->plan.world, 0, &slots); slots >= 0; slots--)
			count_sent(ddp, 0, ddp_add_pieces_on_node(ddp, bucket, slots), &sent);
		count_sent(ddp, 0, ddp_add_pieces_between(ddp, bucket, LAST_PIECES), &sent);
		count_sent(ddp, 0, ddp_add_owned(ddp, bucket, ddp->arenas[0], false, 0), &sent);
		count_sent(ddp, 0, ddp_add_carried(ddp, bucket, ddp->arenas[0], false), &sent);
	}
	return sent;
}

/* A node sends its pieces of what its ranks don't own, and the sums of what they own to each other
 * node: with one piece that is a ring's bytes for a world of nodes. */
static int check_node(const struct ddp *ddp, const struct ddp_bytes *all, struct err *err)
{
	const struct ddp_nodes *nodes = &ddp->nodes;
	int node = nodes->node_of[ddp->plan.rank];
	struct tree_node ignored[TREE_PIECES_MAX];
	uint64_t outside = 0, owned = 0, whole = ddp->table->elements * sizeof(float);
	int pieces = tree_group_pieces(ddp->plan.slots, ddp->plan.world, nodes->begin[node],
		nodes->begin[node + 1], ignored);

	for (int rank = nodes->begin[node]; rank < nodes->begin[node + 1]; rank++) {
		outside += all[nodes->rank[rank]].outside;
		for (int i = 0; i < ddp->bucket_count; i++) {
			size_t count;
			ddp_owned(ddp, &ddp->buckets[i], rank, &count);
			owned += count * sizeof(float);
		}
	}
	WORLD_CHECK(
		outside == (whole - owned) * (uint64_t)pieces + owned * ((uint64_t)nodes->count - 1));
	return 0;
}

static int body_bytes(struct comm *comm, void *arg, struct err *err)
{
	const struct ddp_work *job = arg;
	struct ddp *ddp = ddp_work_create(comm, job, err);
	struct ddp_bytes all[WORLD_MAX], mine;
	uint64_t most = 0;

	if (!ddp)
		return -1;
	WORLD_CHECK(ddp->nodes.count == job->nodes && ddp_has_nodes(ddp));
	mine = sent_in_step(ddp);
	if (comm_wait(comm, comm_allgather(comm, "bytes", &mine, all, sizeof mine), err) < 0)
		return -1;
	for (int rank = 0; rank < comm_size(comm); rank++)
		if (all[rank].inside + all[rank].outside > most)
			most = all[rank].inside + all[rank].outside;
	WORLD_CHECK(most == ddp_cost(ddp).sent);
	int rc = check_node(ddp, all, err);
	ddp_destroy(ddp);
	return rc;
}

static void test_bytes(void **state)
{
	static const struct {
		int slots, world, nodes, larger;
	} cases[] = { { 16, 8, 4, 0 }, { 16, 8, 2, 0 }, { 16, 4, 2, 2 }, { 16, 6, 3, 0 },
		{ 24, 6, 3, 1 }, { 7, 5, 2, 1 } };
	struct world_rank ranks[WORLD_MAX];

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct ddp_work job;

		ddp_work_make(&job, cases[i].slots, 300000, 0);
		job.nodes = cases[i].nodes;
		job.larger = cases[i].larger;
		job.spread = i % 2;
		world_run(cases[i].world, 30, body_bytes, &job, ranks);
		world_assert_ok(cases[i].world, ranks);
		ddp_work_free(&job);
	}
}

/* ---- a world that does not exist ---- */

struct counted {
	struct ddp_work job;
	int nodes[WORLD_MAX];          /* the ranks' */
	bool alone;                    /* the rank runs over comm_dry_run */
	struct comm_sent_count *ranks; /* [WORLD_MAX] what each has sent; memory that all share */
};

/* One step, with all that belongs to it. */
static int body_counted(struct comm *comm, void *arg, struct err *err)
{
	struct counted *counted = arg;
	const struct ddp_config config = { .slots = counted->job.slots,
		.bucket_bytes = counted->job.bucket_bytes,
		.zero = counted->job.zero,
		.nodes = counted->nodes };
	struct ddp *ddp = ddp_create(comm, counted->job.ops, &counted->job.table, &config, err);
	float *arena = calloc(counted->job.table.elements, sizeof *arena);
	struct ddp_result result;
	double exposed = 0;

	if (!ddp || !arena)
		return -1;
	struct comm_sent_count *count = counted->alone ? comm_dry_run_count(comm) : &sent_count;
	count->node_of = counted->nodes;
	if (ddp_work_run_step(ddp, &counted->job, 1, ddp_work_control(comm, 1), &result, err) < 0)
		return -1;
	ddp_allgather_weights(ddp, arena);
	if (ddp_whole(ddp, &exposed, err) < 0)
		return -1;
	counted->ranks[comm_rank(comm)] = *count;
	ddp_destroy(ddp);
	free(arena);
	return 0;
}

static void check_alone(struct counted *counted, int world, int rank)
{
	const struct ident ident = { .rank = rank, .world_size = world, .node = "here" };
	struct comm_sent_count there = counted->ranks[rank], *here = &counted->ranks[rank];
	struct err err = { 0 };
	struct comm *comm = comm_open_over(&comm_dry_run, &ident, NULL, 30, &err);

	assert_non_null(comm);
	counted->alone = true;
	if (body_counted(comm, counted, &err) < 0)
		fail_msg("rank %d of %d: %s", rank, world, err.text);
	comm_close(comm);
	assert_true(here->inside.messages > 0 || here->outside.messages > 0);
	assert_memory_equal(&there.inside, &here->inside, sizeof there.inside);
	assert_memory_equal(&there.outside, &here->outside, sizeof there.outside);
}

/* A rank without a network, which bench/worlds.sh asks for worlds of thousands, sends to the
 * message and to the byte what it sends in a world of that many. */
static void test_foreseen(void **state)
{
	static const struct {
		int slots, world, nodes, larger, zero;
	} cases[] = { { 16, 8, 4, 0, 0 }, { 16, 8, 2, 0, 1 }, { 16, 6, 2, 2, 0 }, { 24, 6, 3, 1, 1 },
		{ 7, 5, 0, 0, 0 }, { 40, 20, 4, 0, 0 }, { 64, 64, 8, 0, 1 } };
	const bool is_long = getenv("MUSTER_LONG") && *getenv("MUSTER_LONG");
	struct world_rank ranks[WORLD_MAX];
	struct counted counted;

	(void)state;
	counted.ranks = mmap(NULL, WORLD_MAX * sizeof *counted.ranks, PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	for (size_t i = 0; i < sizeof cases / sizeof cases[0] - !is_long; i++) {
		ddp_work_make(&counted.job, cases[i].slots, 300000, 0);
		counted.job.nodes = cases[i].nodes;
		counted.job.larger = cases[i].larger;
		counted.job.zero = cases[i].zero;
		counted.job.spread = i % 2;
		for (int rank = 0; rank < cases[i].world; rank++)
			counted.nodes[rank] = ddp_work_node(&counted.job, cases[i].world, rank);
		world_provider = &counting_network;
		counted.alone = false;
		world_run(cases[i].world, 60, body_counted, &counted, ranks);
		world_assert_ok(cases[i].world, ranks);
		for (int rank = 0; rank < cases[i].world; rank++)
			check_alone(&counted, cases[i].world, rank);
		ddp_work_free(&counted.job);
	}
	world_provider = NULL;
	munmap(counted.ranks, WORLD_MAX * sizeof *counted.ranks);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_layouts),
		cmocka_unit_test(test_ranks_out_of_order),
		cmocka_unit_test(test_bytes),
		cmocka_unit_test(test_foreseen),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
