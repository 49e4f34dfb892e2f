/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the nodes of the tree that a rank sums alone, and the additions that join the ranks'
 * nodes. */
#include "order/tree.h"

#include <stdbool.h>
#include <stddef.h>

int tree_rank_slots(int slots, int world, int rank, int *count)
{
	int base = slots / world, longer = slots % world;

	*count = base + (rank < longer ? 1 : 0);
	return rank * base + (rank < longer ? rank : longer);
}

static int node_begin(struct tree_node node)
{
	return node.index << node.level;
}

int tree_node_end(struct tree_node node, int slots)
{
	int end = (node.index + 1) << node.level;
	return end < slots ? end : slots;
}

/* A left child without a sibling has the same sum as its parent. The root is nobody's child. */
static bool is_only_child(struct tree_node node, int slots)
{
	return node.index % 2 == 0 && tree_node_end(node, slots) == slots && node_begin(node) > 0;
}

static struct tree_node node_parent(struct tree_node node)
{
	return (struct tree_node) { .level = node.level + 1, .index = node.index / 2 };
}

int tree_pieces(int slots, int world, int rank, struct tree_node pieces[TREE_PIECES_MAX])
{
	return tree_group_pieces(slots, world, rank, rank + 1, pieces);
}

int tree_group_pieces(int slots, int world, int first, int end,
	struct tree_node pieces[TREE_PIECES_MAX])
{
	int count, pieces_count = 0;
	int last = tree_rank_slots(slots, world, end - 1, &count) + count;
	int at = tree_rank_slots(slots, world, first, &count);

	while (at < last) {
		struct tree_node node = { .level = 0, .index = at };

		while (node.index % 2 == 0 && tree_node_end(node_parent(node), slots) <= last
			&& tree_node_end(node, slots) - node_begin(node) < slots)
			node = node_parent(node);
		pieces[pieces_count++] = node;
		at = tree_node_end(node, slots);
	}
	return pieces_count;
}

void tree_counter_push(struct tree_counter *counter, struct tree_node node, int tag, tree_add *add,
	void *arg)
{
	counter->nodes[counter->count] = node;
	counter->tags[counter->count++] = tag;
	for (;;) {
		struct tree_node *top = &counter->nodes[counter->count - 1];

		if (is_only_child(*top, counter->slots)) {
			*top = node_parent(*top);
			continue;
		}
		struct tree_node *below = counter->count > 1 ? top - 1 : NULL;
		if (!below || top->index % 2 == 0 || below->level != top->level
			|| below->index != top->index - 1)
			return;
		add(arg, counter->tags[counter->count - 2], counter->tags[counter->count - 1]);
		*below = node_parent(*below);
		counter->count--;
	}
}

struct merge_count {
	int *additions;
	int most, number;
};

static void count_merge(void *arg, int left, int right)
{
	const struct merge_count *count = arg;
	(void)left, (void)right;
	if (count->number < count->most)
		count->additions[count->number]++;
}

static void push_group(struct tree_counter *counter, int world, int first, int end,
	struct merge_count *count)
{
	struct tree_node pieces[TREE_PIECES_MAX];
	int of_group = tree_group_pieces(counter->slots, world, first, end, pieces);

	for (int i = 0; i < of_group; i++, count->number++) {
		if (count->number < count->most)
			count->additions[count->number] = 0;
		tree_counter_push(counter, pieces[i], count->number, count_merge, count);
	}
}

int tree_additions(int slots, int world, int *additions, int most)
{
	struct tree_counter counter = { .slots = slots };
	struct merge_count count = { additions, most, 0 };

	for (int rank = 0; rank < world; rank++)
		push_group(&counter, world, rank, rank + 1, &count);
	return count.number;
}

int tree_group_additions(int slots, int world, const int *begin, int groups, int *additions,
	int most)
{
	struct tree_counter counter = { .slots = slots };
	struct merge_count count = { additions, most, 0 };

	for (int group = 0; group < groups; group++)
		push_group(&counter, world, begin[group], begin[group + 1], &count);
	return count.number;
}
