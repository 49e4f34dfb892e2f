/* SPDX-License-Identifier: Apache-2.0 */
/* Prints to standard output and checks that it got there. */
#include "doctor/doctor_print.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "common/auto.h"
#include "common/io.h"
#include "common/record.h"

static int count_of(const struct findings *findings, enum check_severity severity)
{
	int count = 0;
	for (int i = 0; i < findings->count; i++)
		count += findings->list[i].check->severity == severity;
	return count;
}

static void print_count(int count, const char *noun, bool *any)
{
	if (count)
		printf("%s%d %s%s", *any ? ", " : "", count, noun, count == 1 ? "" : "s");
	*any |= count > 0;
}

static int nodes_of(const struct checkup *checkup)
{
	int nodes = 0;
	for (int i = 0; i < checkup->count; i++)
		nodes += checkup->tasks[i].local_rank == 0;
	return nodes;
}

static void print_summary(const struct findings *findings, const struct checkup *checkup)
{
	int nodes = nodes_of(checkup);
	bool any = false;
	printf("muster-doctor: ");
	if (checkup->count < checkup->tasks[0].world_size)
		printf("rank %d of %d, alone: ", checkup->tasks[0].rank, checkup->tasks[0].world_size);
	else if (checkup->tasks[0].in_step || checkup->count > 1)
		printf("%d rank%s on %d node%s: ", checkup->count, checkup->count == 1 ? "" : "s", nodes,
			nodes == 1 ? "" : "s");
	else
		printf("%s: ", checkup->tasks[0].node);
	for (int severity = CHECK_ERROR; severity >= CHECK_NOTE; severity--)
		print_count(count_of(findings, (enum check_severity)severity),
			check_severity_name((enum check_severity)severity), &any);
	printf("%s\n", any ? "" : "no fault found");
}

int doctor_print_text(const struct findings *findings, const struct checkup *checkup, bool summary,
	struct err *err)
{
	char line[1200];
	for (int severity = CHECK_ERROR; severity >= CHECK_NOTE; severity--)
		for (int i = 0; i < findings->count; i++)
			if ((int)findings->list[i].check->severity == severity)
				puts(finding_line(&findings->list[i], checkup, line, sizeof line));
	if (summary)
		print_summary(findings, checkup);
	return io_flush_output(err);
}

static json_t *describe(const struct finding *finding, const struct checkup *checkup)
{
	json_t *ranks = json_array(), *nodes = json_array();
	const char *last = "";
	for (int i = 0; finding->tasks && i < checkup->count; i++) {
		if (!finding->tasks[i])
			continue;
		ranks = record_append(ranks, json_integer(checkup->tasks[i].rank));
		if (strcmp(last, checkup->tasks[i].node) != 0)
			nodes = record_append(nodes, json_string(checkup->tasks[i].node));
		last = checkup->tasks[i].node;
	}
	return json_pack("{s:s, s:s, s:o, s:o, s:s, s:s}", "check", finding->check->name, "severity",
		check_severity_name(finding->check->severity), "ranks", ranks, "nodes", nodes, "text",
		finding->text, "remedy", finding->remedy);
}

int doctor_print_json(const struct findings *findings, const struct checkup *checkup,
	struct err *err)
{
	int worst = findings_worst(findings);
	json_t *list = json_array();
	for (int severity = CHECK_ERROR; severity >= CHECK_NOTE; severity--)
		for (int i = 0; i < findings->count; i++)
			if ((int)findings->list[i].check->severity == severity)
				list = record_append(list, describe(&findings->list[i], checkup));
	json_t *object = json_pack("{s:i, s:i, s:s, s:o}", "ranks", checkup->count, "nodes",
		nodes_of(checkup), "worst",
		worst < 0 ? "none" : check_severity_name((enum check_severity)worst), "findings", list);
	AUTO_FREE char *text = record_dump(object, JSON_COMPACT);
	json_decref(object);
	if (!text)
		return err_set(err,
			"muster-doctor: couldn't write the findings: a name is not UTF-8, or there is no "
			"memory");
	puts(text);
	return io_flush_output(err);
}

int doctor_print_checks(struct err *err)
{
	for (const struct check *check = checks; check->name; check++)
		printf("%s%s\n%s\n%s\n%s\n", check == checks ? "" : "\n", check->name,
			check_severity_name(check->severity), check->what, check->remedy);
	return io_flush_output(err);
}
