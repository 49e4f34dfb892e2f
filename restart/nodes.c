/* SPDX-License-Identifier: Apache-2.0 */
/* A job has few enough nodes that each question looks at all of them. */
#include "config.h"

#include "restart/nodes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/hostlist.h"

int nodes_read(struct nodes *nodes, const char *list, struct err *err)
{
	struct node node = { .fd = -1 };
	*nodes = (struct nodes) { .count = 0 };
	while (hostlist_nth(list, nodes->count, node.name, sizeof node.name) == 0) {
		struct node *more = realloc(nodes->all, ((size_t)nodes->count + 1) * sizeof *more);
		if (!more) {
			nodes_free(nodes);
			return err_set(err, "out of memory");
		}
		nodes->all = more;
		more[nodes->count++] = node;
	}
	if (nodes->count == 0)
		return err_fail(err, EXIT_USAGE, "couldn't read the nodes of the job: '%.200s'", list);
	return 0;
}

void nodes_free(struct nodes *nodes)
{
	free(nodes->all);
	*nodes = (struct nodes) { .count = 0 };
}

int nodes_left(const struct nodes *nodes)
{
	int left = 0;
	for (int i = 0; i < nodes->count; i++)
		left += !nodes->all[i].out;
	return left;
}

int nodes_choose(struct nodes *nodes, int most)
{
	int chosen = 0;
	for (int i = 0; i < nodes->count; i++) {
		struct node *node = &nodes->all[i];
		node->used = !node->out && chosen < most;
		node->heard = node->lost = node->unreachable = false;
		chosen += node->used;
	}
	return chosen;
}

struct node *nodes_find(struct nodes *nodes, const char *name)
{
	for (int i = 0; i < nodes->count; i++)
		if (strcmp(nodes->all[i].name, name) == 0)
			return &nodes->all[i];
	return NULL;
}

static bool is_of(const struct node *node, enum node_kind kind)
{
	switch (kind) {
	case NODES_USED: return node->used;
	case NODES_OUT: return node->out;
	default: return !node->out && !(node->used && node->heard);
	}
}

char *nodes_list(const struct nodes *nodes, enum node_kind kind)
{
	char *list = calloc((size_t)nodes->count + 1, sizeof nodes->all->name), *at = list;
	for (int i = 0; list && i < nodes->count; i++)
		if (is_of(&nodes->all[i], kind))
			at += sprintf(at, "%s%s", at > list ? "," : "", nodes->all[i].name);
	return list;
}

int nodes_tasks_each(const char *coded)
{
	int tasks, nodes, end = 0;
	if (sscanf(coded, "%d(x%d)%n", &tasks, &nodes, &end) == 2 && !coded[end])
		return tasks > 0 && nodes > 0 ? tasks : -1;
	return sscanf(coded, "%d%n", &tasks, &end) == 1 && !coded[end] && tasks > 0 ? tasks : -1;
}
