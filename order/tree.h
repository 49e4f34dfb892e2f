/* SPDX-License-Identifier: Apache-2.0 */
/* The fixed summation tree over slots that makes a result independent of the world size.
 * Node (level, index) is the slots [index·2^level, (index+1)·2^level) ∩ [0, slots). Its value is
 * the value of its left child plus that of its right child in fp32; where the right child is empty
 * the node is its left child. */
#ifndef MUSTER_TREE_H
#define MUSTER_TREE_H

#define TREE_SLOTS_MAX 4096
#define TREE_PIECES_MAX 32

struct tree_node {
	int level, index;
};

/* Slots of rank r: contiguous, the first slots mod world ranks have one more. Returns the first;
 * *count the number. */
int tree_rank_slots(int slots, int world, int rank, int *count);

/* The maximal nodes inside a rank's slots, left to right. Returns their number (≤ TREE_PIECES_MAX).
 */
int tree_pieces(int slots, int world, int rank, struct tree_node pieces[TREE_PIECES_MAX]);

/* One past the last slot of a node. */
int tree_node_end(struct tree_node node, int slots);

/* Left to right, nodes are pushed and merge with their left siblings as in a binary counter. Each
 * carries a tag of the caller's (an arena, a piece's number); a merged node keeps that of its left
 * child. Begin with { .slots = S }. */
struct tree_counter {
	int slots, count;
	struct tree_node nodes[TREE_PIECES_MAX];
	int tags[TREE_PIECES_MAX];
};

/* Called for each addition of the tree above all ranks' pieces, in an order in which operands exist
 * before their use: piece `right` is added to piece `left`, and the result is `left`. Pieces are
 * numbered over all ranks, left to right. The last result is piece 0. */
typedef void tree_add(void *arg, int left, int right);
void tree_reduce(int slots, int world, tree_add *add, void *arg);

/* The same additions as a stack sees them: piece n is pushed, then the two on top are added
 * additions[n] times, the lower one first. Writes at most `most` of these; returns the number of
 * pieces. */
int tree_additions(int slots, int world, int *additions, int most);

/* Pushes the node that follows the last one; `add` is called with the tags for each merge that it
 * completes. */
void tree_counter_push(struct tree_counter *counter, struct tree_node node, int tag, tree_add *add,
	void *arg);

#endif
