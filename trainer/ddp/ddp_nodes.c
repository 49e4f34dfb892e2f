/* SPDX-License-Identifier: Apache-2.0 */
/* Finds who owns and who carries what. Like the plan it only calculates. */
#include "trainer/ddp/ddp_nodes.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Returns the number of nodes; 0 where the ranks of one do not follow each other. */
static int find_nodes(struct ddp_nodes *nodes, const int *numbers)
{
	int count = 0;

	for (int rank = 0; rank < nodes->world; rank++) {
		if (rank == 0 || numbers[rank] != numbers[rank - 1])
			nodes->begin[count++] = rank;
		for (int before = 0; before < count - 1; before++)
			if (numbers[nodes->begin[before]] == numbers[rank])
				return 0;
	}
	return count;
}

static void place_nodes(struct ddp_nodes *nodes, const int *numbers)
{
	nodes->count = find_nodes(nodes, numbers);
	if (nodes->count < 2) {
		nodes->count = nodes->world;
		for (int rank = 0; rank < nodes->world; rank++)
			nodes->begin[rank] = rank;
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
		.begin = calloc(ranks + 1, sizeof(int)),
		.node_of = calloc(ranks, sizeof(int)),
		.position = calloc(ranks, sizeof(int)),
		.owner = calloc(ranks, sizeof(int)),
		.column_start = calloc(ranks + 1, sizeof(int)) };
	if (!nodes->begin || !nodes->node_of || !nodes->position || !nodes->owner
		|| !nodes->column_start)
		return err_set(err, "ddp: couldn't plan the way over the nodes: out of memory");
	place_nodes(nodes, numbers);
	place_segments(nodes);
	return 0;
}

void ddp_nodes_clear(struct ddp_nodes *nodes)
{
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
