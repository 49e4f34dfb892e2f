/* SPDX-License-Identifier: Apache-2.0 */
/* The fixed summation tree over slots, which makes a result independent of the world size. Node
 * (level, index) covers the slots [index·2^level, (index+1)·2^level) ∩ [0, slots). Its value is the
 * sum of its two children in fp32, or its left child if the right one is empty. */
#ifndef MUSTER_TREE_H
#define MUSTER_TREE_H

#define TREE_SLOTS_MAX 16384
#define TREE_PIECES_MAX 32

struct tree_node {
	int level, index;
};

/* A rank's slots are contiguous; the first (slots mod world) ranks have one more. Returns the first
 * slot; *count is their number. */
int tree_rank_slots(int slots, int world, int rank, int *count);

/* A rank's pieces: the maximal nodes inside its slots, left to right. Returns their number (≤
 * TREE_PIECES_MAX). */
int tree_pieces(int slots, int world, int rank, struct tree_node pieces[TREE_PIECES_MAX]);
/* Those of the ranks [first, end) together. */
int tree_group_pieces(int slots, int world, int first, int end,
	struct tree_node pieces[TREE_PIECES_MAX]);

/* One past the last slot of a node. */
int tree_node_end(struct tree_node node, int slots);

/* Nodes are pushed from left to right and merge with their left siblings, as in a binary counter.
 * Each has a tag of the caller's (an arena, a piece's number); a merged node keeps its left
 * child's. Begin with { .slots = S }. */
struct tree_counter {
	int slots, count;
	struct tree_node nodes[TREE_PIECES_MAX];
	int tags[TREE_PIECES_MAX];
};

/* The additions above the ranks' pieces, which are numbered from left to right over all ranks, for
 * a stack: push piece n, then add the two topmost entries additions[n] times, the lower one first.
 * Writes at most `most` entries; returns the number of pieces. */
int tree_additions(int slots, int world, int *additions, int most);
/* The same above the pieces of groups of ranks that follow each other: group g has the ranks
 * [begin[g], begin[g + 1]). Where they are not all ranks, more than one entry is left. */
int tree_group_additions(int slots, int world, const int *begin, int groups, int *additions,
	int most);

/* Pushes the node that follows the last one. `add` is called for each addition that this completes,
 * with the tags: node `right` is added to node `left`, which then holds the result. */
typedef void tree_add(void *arg, int left, int right);
void tree_counter_push(struct tree_counter *counter, struct tree_node node, int tag, tree_add *add,
	void *arg);

#endif
