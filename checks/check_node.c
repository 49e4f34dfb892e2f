/* SPDX-License-Identifier: Apache-2.0 */
/* The checks that compare nodes: versions, clocks, connections, the shared directory, limits. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "checks/check.h"

#define CLOCK_SECONDS 1.0

/* ---- versions ---- */

static const char *field(const struct checkup *checkup, int task, size_t offset)
{
	return (const char *)&checkup->tasks[task] + offset;
}

/* The value that most tasks have; the first one if several are equally frequent. */
static const char *usual(const struct checkup *checkup, size_t offset)
{
	const char *best = "";
	int most = 0;
	for (int i = 0; i < checkup->count; i++) {
		int have = 0;
		for (int k = 0; k < checkup->count; k++)
			have += strcmp(field(checkup, i, offset), field(checkup, k, offset)) == 0;
		if (have > most) {
			most = have;
			best = field(checkup, i, offset);
		}
	}
	return best;
}

static void compare_versions(const struct check *check, const struct checkup *checkup,
	struct findings *findings, const char *noun, size_t offset)
{
	const char *most = usual(checkup, offset);
	char value[200];
	for (int i = 0; i < checkup->count; i++) {
		const char *own = field(checkup, i, offset);
		if (strcmp(own, most) == 0)
			continue;
		snprintf(value, sizeof value, "%s %s", noun, most[0] ? most : own);
		findings_add(findings, check, i, value, "%s%s%s here, %s%s on most", own[0] ? noun : "no ",
			own[0] ? " " : noun, own, most[0] ? "" : "none", most);
	}
}

void check_driver(const struct check *check, const struct checkup *checkup,
	struct findings *findings)
{
	compare_versions(check, checkup, findings, "driver", offsetof(struct facts, driver));
}

void check_cuda(const struct check *check, const struct checkup *checkup, struct findings *findings)
{
	compare_versions(check, checkup, findings, "CUDA", offsetof(struct facts, cuda));
}

void check_nccl(const struct check *check, const struct checkup *checkup, struct findings *findings)
{
	compare_versions(check, checkup, findings, "NCCL", offsetof(struct facts, nccl));
}

void check_muster(const struct check *check, const struct checkup *checkup,
	struct findings *findings)
{
	compare_versions(check, checkup, findings, "Muster", offsetof(struct facts, muster));
}

/* ---- connections ---- */

void check_port(const struct check *check, const struct checkup *checkup, struct findings *findings)
{
	for (int i = 0; i < checkup->count; i++)
		if (checkup->tasks[i].port_error[0])
			findings_add(findings, check, i, NULL, "can't listen on MASTER_PORT=%d: %s",
				checkup->tasks[i].port, checkup->tasks[i].port_error);
}

void check_master(const struct check *check, const struct checkup *checkup,
	struct findings *findings)
{
	for (int i = 0; i < checkup->count; i++)
		if (checkup->tasks[i].master_error[0])
			findings_add(findings, check, i, checkup->tasks[0].node, "can't reach rank 0 at %s: %s",
				checkup->tasks[i].master, checkup->tasks[i].master_error);
}

/* ---- network interfaces ---- */

/* NCCL needs any one of the words to match; Gloo needs all of them. */
static bool has_wanted(const char *wanted, const char *interfaces, bool each)
{
	char list[sizeof((struct facts *)0)->interfaces],
		words[sizeof((struct facts *)0)->nccl_wanted + 1], *rest = NULL;
	bool any = false;
	snprintf(list, sizeof list, "%s", interfaces);
	for (char *name = strtok_r(list, " ", &rest); name && !each; name = strtok_r(NULL, " ", &rest))
		any |= facts_takes_interface(wanted, name);
	for (const char *at = wanted; each && *at; at += strcspn(at, ","), at += *at == ',') {
		snprintf(words, sizeof words, "=%.*s", (int)strcspn(at, ","), at);
		if (!has_wanted(words, interfaces, false))
			return false;
		any = true;
	}
	return any;
}

void check_interface_missing(const struct check *check, const struct checkup *checkup,
	struct findings *findings)
{
	for (int i = 0; i < checkup->count; i++) {
		const struct facts *task = &checkup->tasks[i];
		const struct {
			const char *name, *wanted;
			bool each;
		} rows[] = {
			{ "NCCL_SOCKET_IFNAME", task->nccl_wanted, false },
			{ "GLOO_SOCKET_IFNAME", task->gloo_wanted, true },
		};
		for (int row = 0; task->interfaces[0] && row < 2; row++)
			if (rows[row].wanted[0]
				&& !has_wanted(rows[row].wanted, task->interfaces, rows[row].each))
				findings_add(findings, check, i, rows[row].name, "%s=%s, and the node has %s",
					rows[row].name, rows[row].wanted, task->interfaces);
	}
}

static void judge_interface(const struct check *check, struct findings *findings,
	const struct facts *task, int number, const char *error)
{
	char value[80] = "(ip -brief address shows them)";
	if (task->interface[0])
		snprintf(value, sizeof value, "(%s has the address of this node's name)", task->interface);
	if (error[0])
		findings_add(findings, check, number, value, "can't reach %s", error);
}

void check_nccl_interface(const struct check *check, const struct checkup *checkup,
	struct findings *findings)
{
	for (int i = 0; i < checkup->count; i++)
		if (checkup->tasks[i].gpus > 0 || checkup->tasks[i].nccl_wanted[0])
			judge_interface(check, findings, &checkup->tasks[i], i, checkup->tasks[i].nccl_error);
}

void check_gloo_interface(const struct check *check, const struct checkup *checkup,
	struct findings *findings)
{
	for (int i = 0; i < checkup->count; i++)
		judge_interface(check, findings, &checkup->tasks[i], i, checkup->tasks[i].gloo_error);
}

/* ---- clocks ---- */

/* No task leaves the fence before all have reached it. So, however long the messages took, task i's
 * clock is ahead of the first task's by at least its "before" minus the first task's "after", and
 * at most its "after" minus the first task's "before". */
void check_clock(const struct check *check, const struct checkup *checkup,
	struct findings *findings)
{
	const struct facts *first = &checkup->tasks[0];
	for (int i = 1; i < checkup->count; i++) {
		const struct facts *task = &checkup->tasks[i];
		if (!(task->met_before > 0) || !(first->met_before > 0))
			continue;
		double least = task->met_before - first->met_after,
			   most = task->met_after - first->met_before;
		if (least > CLOCK_SECONDS || most < -CLOCK_SECONDS)
			findings_add(findings, check, i, NULL, "the clock is %.0f s %s that of rank %d on %s",
				fabs((least + most) / 2), least > 0 ? "ahead of" : "behind", first->rank,
				first->node);
	}
}

/* ---- the shared directory ---- */

void check_dir(const struct check *check, const struct checkup *checkup, struct findings *findings)
{
	for (int i = 0; i < checkup->count; i++)
		if (checkup->tasks[i].dir_error[0] && !checkup->tasks[i].dir_full)
			findings_add(findings, check, i, NULL, "%s", checkup->tasks[i].dir_error);
}

void check_dir_shared(const struct check *check, const struct checkup *checkup,
	struct findings *findings)
{
	for (int i = 0; i < checkup->count; i++)
		if (checkup->tasks[i].dir_differs)
			findings_add(findings, check, i, NULL,
				"%s is not the directory that rank 0 on %s has there",
				checkup->site ? checkup->site->dir : "the shared directory",
				checkup->tasks[0].node);
}

static bool is_scarce(const struct checkup *checkup, int task)
{
	int64_t need = checkup->site ? checkup->site->need_bytes : -1,
			free = checkup->tasks[task].dir_free;
	return !checkup->tasks[task].dir_full && free >= 0 && need > 0 && free < need;
}

void check_dir_space(const struct check *check, const struct checkup *checkup,
	struct findings *findings)
{
	int64_t least = INT64_MAX;
	for (int i = 0; i < checkup->count; i++)
		if (is_scarce(checkup, i) && checkup->tasks[i].dir_free < least)
			least = checkup->tasks[i].dir_free;
	for (int i = 0; i < checkup->count; i++) {
		if (checkup->tasks[i].dir_full)
			findings_add(findings, check, i, NULL, "%s", checkup->tasks[i].dir_error);
		if (is_scarce(checkup, i))
			findings_add(findings, check, i, NULL,
				"%s has %.1f MiB free, and two checkpoints need %.1f MiB", checkup->site->dir,
				(double)least / 1048576, (double)checkup->site->need_bytes / 1048576);
	}
}

/* ---- limits ---- */

void check_memory(const struct check *check, const struct checkup *checkup,
	struct findings *findings)
{
	for (int i = 0; i < checkup->count; i++) {
		const struct facts *task = &checkup->tasks[i];
		if (task->rdma && task->locked_memory >= 0 && task->locked_memory != INT64_MAX)
			findings_add(findings, check, i, NULL,
				"locked memory is limited to %lld KiB, and RDMA needs more",
				(long long)task->locked_memory / 1024);
	}
}
