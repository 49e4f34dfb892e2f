/* SPDX-License-Identifier: Apache-2.0 */
/* libFuzzer harness of where tasks are: Slurm's code of tasks on nodes against the list that it
 * stands for, and the controller's layout of a step against a search of all of it. Four bytes of
 * the shape, then the text of both. */
#include <errno.h>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/hostlist.h"
#include "common/ident.h"
#include "slurm/step_layout.h"

#define NODES_MAX 40

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size);

/* ---- tasks on nodes ---- */

/* The number at *at, which moves past it; -1 where there is none that an int holds. */
static long long take_number(const char **at)
{
	long long value = 0;
	if (**at < '0' || **at > '9')
		return -1;
	for (; **at >= '0' && **at <= '9'; ++*at) {
		value = value * 10 + (**at - '0');
		if (value > 2147483647)
			return -1;
	}
	return value;
}

/* Number `node` of the list that a code means, made one by one; -1 for none. */
static int expand(const char *coded, int node)
{
	for (int at_node = 0; *coded;) {
		long long tasks = take_number(&coded), nodes = 1;
		if (tasks < 0)
			return -1;
		if (coded[0] == '(' && coded[1] == 'x') {
			coded += 2;
			nodes = take_number(&coded);
			if (nodes < 1 || *coded++ != ')')
				return -1;
		}
		for (long long i = 0; i < nodes && at_node <= node; i++)
			if (at_node++ == node)
				return (int)tasks;
		if (*coded++ != ',')
			return -1;
	}
	return -1;
}

/* ---- the controller's layout ---- */

static slurm_step_layout_t *answer;

slurm_step_layout_t *slurm_job_step_layout_get(slurm_step_id_t *step)
{
	errno = ESLURM_INVALID_JOB_ID;
	return step->step_het_comp == 0 ? answer : NULL;
}

void slurm_job_step_layout_free(slurm_step_layout_t *layout) {}

char *slurm_strerror(int error)
{
	return "an error of Slurm's";
}

static void check_layout(const unsigned char shape[4], char *list)
{
	uint32_t tids[NODES_MAX][4], *rows[NODES_MAX];
	uint16_t tasks[NODES_MAX];
	uint32_t next = shape[1], home = NODES_MAX;
	slurm_step_layout_t layout = { .node_cnt = shape[0] % NODES_MAX,
		.node_list = list,
		.tasks = tasks,
		.tids = rows };
	struct step_layout_step step = { .leader = 7,
		.job = 7u + shape[3] % 3,
		.step = 0,
		.nodes = list };
	struct err err = { .text = "" };
	char node[256], other[256];
	for (uint32_t n = 0; n < layout.node_cnt; n++) {
		rows[n] = tids[n];
		tasks[n] = (uint16_t)(n * shape[2] % 5);
		for (uint32_t t = 0; t < tasks[n]; t++) {
			tids[n][t] = next++ % 64;
			home = tids[n][t] == 0 && home == NODES_MAX ? n : home;
		}
	}
	answer = &layout;
	bool there = home < NODES_MAX && hostlist_nth(list, home, other, sizeof other) == 0
		&& hostlist_find(list, other) >= 0;
	int found = step_layout_first_node(&step, node, sizeof node, &err);
	if ((found == 0) != there || (there && strcmp(node, other) != 0) || (!there && !err.text[0]))
		abort();
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
	if (size < 4)
		return 0;
	char *text = malloc(size - 3);
	if (!text)
		return 0;
	memcpy(text, bytes + 4, size - 4);
	text[size - 4] = '\0';
	for (int node = 0; node < NODES_MAX; node++)
		if (ident_tasks_on_node(text, node) != expand(text, node))
			abort();
	ident_tasks_on_node(text, 2147483647);
	check_layout(bytes, text);
	free(text);
	return 0;
}
