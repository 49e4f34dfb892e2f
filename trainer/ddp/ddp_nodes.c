/* SPDX-License-Identifier: Apache-2.0 */
/* Finds who owns and who carries what. Like the plan it only calculates. */
#include "trainer/ddp/ddp_nodes.h"

#include <stdlib.h>
#include <string.h>

/* Nodes come in the order of their first ranks. */
static void place_ranks(struct ddp_nodes *nodes, const int *numbers)
{
	int next = 0;

	for (int rank = 0; rank < nodes->world; rank++)
		nodes->place[rank] = -1;
	for (int first = 0; first < nodes->world; first++) {
		if (nodes->place[first] >= 0)
			continue;
		nodes->begin[nodes->count++] = next;
		for (int rank = first; rank < nodes->world; rank++)
			if (numbers[rank] == numbers[first]) {
				nodes->place[rank] = next;
				nodes->rank[next++] = rank;
			}
	}
}

static void place_nodes(struct ddp_nodes *nodes)
{
	if (nodes->count < 2) {
		nodes->count = nodes->world;
		for (int place = 0; place < nodes->world; place++)
			nodes->begin[place] = place;
	}
	nodes->begin[nodes->count] = nodes->world;
	for (int node = 0; node < nodes->count; node++) {
		int size = ddp_nodes_size(nodes, node);

		nodes->columns = size > nodes->columns ? size : nodes->columns;
		for (int rank = nodes->begin[node]; rank < nodes->begin[node + 1]; rank++)
			nodes->node_of[rank] = node;
	}
}

static void place_segments(struct ddp_nodes *nodes)
{
	int position = 0;

	for (int column = 0; column < nodes->columns; column++) {
		nodes->column_start[column] = position;
		for (int node = 0; node < nodes->count; node++) {
			int rank = ddp_nodes_carrier(nodes, node, column);

			if (ddp_nodes_column(nodes, rank) != column)
				continue;
			nodes->owner[position] = rank;
			nodes->position[rank] = position++;
		}
	}
	nodes->column_start[nodes->columns] = position;
}

int ddp_nodes_make(struct ddp_nodes *nodes, int world, const int *numbers, struct err *err)
{
	size_t ranks = (size_t)world;

	*nodes = (struct ddp_nodes) { .world = world,
		.rank = calloc(ranks, sizeof(int)),
		.place = calloc(ranks, sizeof(int)),
		.begin = calloc(ranks + 1, sizeof(int)),
		.node_of = calloc(ranks, sizeof(int)),
		.position = calloc(ranks, sizeof(int)),
		.owner = calloc(ranks, sizeof(int)),
		.column_start = calloc(ranks + 1, sizeof(int)) };
	if (!nodes->rank || !nodes->place || !nodes->begin || !nodes->node_of || !nodes->position
		|| !nodes->owner || !nodes->column_start)
		return err_set(err, "ddp: couldn't plan the way over the nodes: out of memory");
	place_ranks(nodes, numbers);
	place_nodes(nodes);
	place_segments(nodes);
	return 0;
}

void ddp_nodes_clear(struct ddp_nodes *nodes)
{
	free(nodes->rank);
	free(nodes->place);
	free(nodes->begin);
	free(nodes->node_of);
	free(nodes->position);
	free(nodes->owner);
	free(nodes->column_start);
	memset(nodes, 0, sizeof *nodes);
}

int ddp_nodes_size(const struct ddp_nodes *nodes, int node)
{
	return nodes->begin[node + 1] - nodes->begin[node];
}

/* The columns that a rank carries begin there: the ranks of a small node share them out. */
static int first_column(const struct ddp_nodes *nodes, int node, int local)
{
	return local * nodes->columns / ddp_nodes_size(nodes, node);
}

int ddp_nodes_column(const struct ddp_nodes *nodes, int rank)
{
	int node = nodes->node_of[rank];

	return first_column(nodes, node, rank - nodes->begin[node]);
}

int ddp_nodes_carrier(const struct ddp_nodes *nodes, int node, int column)
{
	int size = ddp_nodes_size(nodes, node);

	return nodes->begin[node] + ((column + 1) * size - 1) / nodes->columns;
}

void ddp_nodes_carried(const struct ddp_nodes *nodes, int rank, int *first, int *end)
{
	int node = nodes->node_of[rank], local = rank - nodes->begin[node];

	*first = nodes->column_start[first_column(nodes, node, local)];
	*end = nodes->column_start[first_column(nodes, node, local + 1)];
}
