/* SPDX-License-Identifier: Apache-2.0 */
/* The additions above the ranks' pieces one by one, as tree_additions() tells them. */
#ifndef MUSTER_TREE_PLAY_H
#define MUSTER_TREE_PLAY_H

#include "order/tree.h"

/* Calls `add` for each addition, with the numbers of its pieces; the sum is in piece 0. Returns how
 * many are left on the stack: 1. */
static inline int tree_play(int slots, int world, tree_add *add, void *arg)
{
	static int additions[TREE_SLOTS_MAX], stack[TREE_SLOTS_MAX];
	int pieces = tree_additions(slots, world, additions, TREE_SLOTS_MAX), depth = 0;

	for (int n = 0; n < pieces; n++) {
		stack[depth++] = n;
		for (int k = 0; k < additions[n]; k++, depth--)
			add(arg, stack[depth - 2], stack[depth - 1]);
	}
	return depth;
}

#endif
