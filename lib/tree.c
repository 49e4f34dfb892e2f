/* SPDX-License-Identifier: Apache-2.0 */
/* The summation tree, as muster-train has it. */
#include "config.h"

#include "lib/muster_private.h"
#include "order/tree.h"

static int check(int slots, int world_size, struct err *err)
{
	if (slots < 1 || slots > TREE_SLOTS_MAX)
		return err_fail(err, EXIT_USAGE, "tree: couldn't use %d slots: give 1 to %d", slots,
			TREE_SLOTS_MAX);
	if (world_size < 1 || world_size > slots)
		return err_fail(err, EXIT_USAGE,
			"tree: couldn't share out %d slots among %d ranks: each needs one", slots, world_size);
	return 0;
}

static void count_addition(void *arg, int left, int right)
{
	(void)left, (void)right;
	++*(int *)arg;
}

int muster_tree_rank(int slots, int world_size, int rank, int *first, int *count, int *additions)
{
	struct err err;
	if (check(slots, world_size, &err) < 0
		|| muster_check_given(first, "the place for the first slot", &err) < 0
		|| muster_check_given(count, "the place for the number of slots", &err) < 0
		|| muster_check_given(additions, "the place for the additions", &err) < 0)
		return muster_failed(&err);
	if (rank < 0 || rank >= world_size) {
		err_fail(&err, EXIT_USAGE, "tree: couldn't tell the slots of rank %d: there are %d ranks",
			rank, world_size);
		return muster_failed(&err);
	}
	struct tree_counter counter = { .slots = slots };
	*first = tree_rank_slots(slots, world_size, rank, count);
	for (int i = 0; i < *count; i++) {
		additions[i] = 0;
		tree_counter_push(&counter, (struct tree_node) { 0, *first + i }, i, count_addition,
			&additions[i]);
	}
	return MUSTER_OK;
}

int muster_tree_join(int slots, int world_size, int *pieces, int *additions)
{
	struct err err;
	if (check(slots, world_size, &err) < 0
		|| muster_check_given(pieces, "the place for the numbers of pieces", &err) < 0
		|| muster_check_given(additions, "the place for the additions", &err) < 0)
		return muster_failed(&err);
	for (int rank = 0; rank < world_size; rank++) {
		struct tree_node nodes[TREE_PIECES_MAX];
		pieces[rank] = tree_pieces(slots, world_size, rank, nodes);
	}
	tree_additions(slots, world_size, additions, slots);
	return MUSTER_OK;
}
